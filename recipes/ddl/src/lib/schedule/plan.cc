#include "schedule/plan.h"

#include <utility>

#include "schedule/walk.h"

namespace ddl {
namespace {

// What of the walk concerns one host.
class Planner {
 public:
  explicit Planner(int host) : me_(host) {}

  void enter(const Node& node) {
    holds_me_.push_back(false);
    if (!node.is_host()) return;
    if (node.host == me_) holds_me_.assign(holds_me_.size(), true);
    holds_me_.pop_back();
  }

  void part(const std::vector<int>& owners) {
    owners_ = &owners;
    mine_ = 0;
    if (!holds_me_.back()) return;
    while (mine_ < owners.size() && owners[mine_] != me_) ++mine_;
  }

  void reduce(Span span, std::size_t j) {
    if (!holds_me_.back() || mine_ == owners_->size()) return;
    if (j == mine_) {
      step_.reductions.push_back({span, *owners_, inbox_});
      inbox_ += span.count() * (owners_->size() - 1);
    } else {
      step_.sends.push_back({(*owners_)[j], span});
    }
  }

  void leave(const Node&, int depth) {
    if (holds_me_.back()) {
      step_.tag = 2 * depth;
      steps_.push_back(std::exchange(step_, {}));
    }
    holds_me_.pop_back();
  }

  Plan take_plan() {
    const std::size_t reducing = steps_.size();
    return {std::move(steps_), reducing, inbox_};
  }

 private:
  int me_;
  std::vector<bool> holds_me_;  // of the groups that are being visited, the root first
  const std::vector<int>* owners_ = nullptr;
  std::size_t mine_ = 0;  // which of the owners this host is; their number: none
  Step step_;
  std::size_t inbox_ = 0;
  std::vector<Step> steps_;  // of this host's ancestors, the lowest first
};

// The way back: what was sent to be reduced comes back, what was reduced goes out.
Step mirror(const Step& up, int me) {
  Step down;
  down.tag = up.tag + 1;
  down.recvs = up.sends;
  for (const Reduction& reduction : up.reductions) {
    for (const int host : reduction.from) {
      if (host != me) down.sends.push_back({host, reduction.span});
    }
  }
  return down;
}

}  // namespace

Span part_of(std::size_t count, int parts, int index) {
  constexpr std::size_t kUnit = 64;
  const std::size_t units = (count + kUnit - 1) / kUnit;
  const std::size_t share = (units + parts - 1) / parts * kUnit;
  const std::size_t begin = std::min(count, share * index);
  return {begin, std::min(count, begin + share)};
}

Plan plan_allreduce(const Node& tree, int host, std::size_t count, std::size_t unit) {
  Planner planner(host);
  Walk<Planner>(unit, &planner).run(tree, count);
  Plan plan = planner.take_plan();
  for (std::size_t i = plan.reducing; i-- > 0;) {
    plan.steps.push_back(mirror(plan.steps[i], host));
  }
  return plan;
}

}  // namespace ddl
