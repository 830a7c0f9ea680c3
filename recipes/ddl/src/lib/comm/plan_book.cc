#include "comm/plan_book.h"

#include "comm/collective_table.h"
#include "schedule/choose.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxPlans = 256;

}  // namespace

PlanBook::PlanBook(const Topology& topology, const Settings& settings, const Chunking& chunking,
                   int host)
    : topology_(topology), settings_(settings), chunking_(chunking), host_(host) {
  for (const Host& each : topology.hosts()) {
    host_sizes_.push_back(static_cast<int>(each.ranks.size()));
  }
}

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
  return row_of(key.collective).plan({tree, host_, key.root, key.count, host_sizes_});
}

}  // namespace ddl
