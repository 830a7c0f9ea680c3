#include "plan_book.h"

#include "schedule/choose.h"
#include "schedule/spread.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxPlans = 256;

}  // namespace

PlanBook::PlanBook(const Topology& topology, const Settings& settings, const Chunking& chunking,
                   int host)
    : topology_(topology), settings_(settings), chunking_(chunking), host_(host) {}

std::shared_ptr<const Plan> PlanBook::plan(const PlanKey& key, std::size_t call_bytes) {
  const int schedule = choice_for(call_bytes).schedule;
  if (plans_.size() >= kMaxPlans) plans_.clear();
  std::shared_ptr<const Plan>& plan = plans_[{key, schedule}];
  if (!plan) plan = std::make_shared<Plan>(make_plan(key, arrange(topology_.tree(), schedule)));
  return plan;
}

PlanBook::Choice PlanBook::choice_for(std::size_t call_bytes) {
  if (choices_.size() >= kMaxPlans) choices_.clear();
  const auto [entry, is_new] = choices_.try_emplace(call_bytes);
  if (is_new) {
    const Node& tree = topology_.tree();
    const int schedule = settings_.schedule != kAnySchedule
                             ? settings_.schedule
                             : choose_schedule(tree, call_bytes, chunking_);
    const Wire wire = usual_wire(tree);
    const Prediction told = predict_allreduce(arrange(tree, schedule), call_bytes, chunking_, wire);
    entry->second = {schedule, told.window};
  }
  return entry->second;
}

Plan PlanBook::make_plan(const PlanKey& key, const Node& tree) const {
  if (key.collective == Collective::kAllreduce) {
    return plan_allreduce(tree, host_, key.count, kPlanUnit);
  }
  if (key.collective == Collective::kBroadcast) {
    return plan_broadcast(tree, host_, key.root, key.count, kPlanUnit);
  }
  const std::size_t block = key.count / topology_.size();
  Pieces owned;
  std::size_t begin = 0;
  for (std::size_t h = 0; h < topology_.hosts().size(); ++h) {
    const std::size_t end = begin + block * topology_.hosts()[h].ranks.size();
    owned.push_back({{begin, end}, static_cast<int>(h)});
    begin = end;
  }
  return key.collective == Collective::kAllgather
             ? plan_allgather(tree, host_, owned, kPlanUnit)
             : plan_reduce_scatter(tree, host_, owned, kPlanUnit);
}

}  // namespace ddl
