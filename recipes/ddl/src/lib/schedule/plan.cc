#include "schedule/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "schedule/route.h"
#include "schedule/walk.h"

namespace ddl {
namespace {

int most_rounds(const Node& tree) {
  if (tree.is_host()) return 0;
  int most = num_rounds(tree.exchange, tree.children.size());
  for (const Node& child : tree.children) most = std::max(most, most_rounds(child));
  return most;
}

int depth_of(const Node& tree) {
  int deepest = 0;
  for (const Node& child : tree.children) deepest = std::max(deepest, 1 + depth_of(child));
  return deepest;
}

// Collects the steps of one host from the walk.
class Planner {
 public:
  Planner(const Node& tree, int host) : me_(host), most_rounds_(most_rounds(tree)) {}

  void enter(const Node& node) {
    if (!node.is_host()) {
      groups_.push_back({node.exchange, false});
    } else if (node.host == me_) {
      for (Group& group : groups_) group.holds_me = true;
    }
  }

  void part(const std::vector<int>& owners) {
    owners_ = &owners;
    mine_ = 0;
    if (!groups_.back().holds_me) return;
    while (mine_ < owners.size() && owners[mine_] != me_) ++mine_;
  }

  void reduce(Span span, std::size_t j) {
    if (!groups_.back().holds_me || mine_ == owners_->size()) return;
    const Exchange exchange = groups_.back().exchange;
    rounds_.resize(num_rounds(exchange, owners_->size()));
    const Route way = route(exchange, owners_->size(), j, mine_);
    if (way.reduces >= 0) {
      Reduction reduction{span, {}, inbox_};
      for (const std::size_t child : way.from) reduction.from.push_back((*owners_)[child]);
      inbox_ += span.count() * (way.from.size() - 1);
      rounds_[way.reduces].reductions.push_back(std::move(reduction));
    }
    if (way.sends >= 0) {
      const bool is_given = steps_.empty() && way.reduces < 0;
      rounds_[way.sends].sends.push_back({(*owners_)[way.to], span, is_given});
    }
  }

  void leave(const Node& node, int depth) {
    if (groups_.back().holds_me) {
      rounds_.resize(num_rounds(node.exchange, node.children.size()));
      if (steps_.empty()) given_ = rounds_.size();
      for (std::size_t i = 0; i < rounds_.size(); ++i) {
        rounds_[i].tag = 2 * (depth * most_rounds_ + static_cast<int>(i));
        steps_.push_back(std::move(rounds_[i]));
      }
      rounds_.clear();
    }
    groups_.pop_back();
  }

  Plan take_plan() {
    const std::size_t reducing = steps_.size();
    return {std::move(steps_), reducing, given_, inbox_};
  }

 private:
  struct Group {
    Exchange exchange;
    bool holds_me;
  };

  int me_;
  int most_rounds_;
  std::vector<Group> groups_;  // that are being visited, the root first
  const std::vector<int>* owners_ = nullptr;
  std::size_t mine_ = 0;      // which of the owners this host is; their number: none
  std::vector<Step> rounds_;  // of the group at hand
  std::size_t inbox_ = 0;
  std::size_t given_ = 0;
  std::vector<Step> steps_;  // of this host's ancestors, the lowest first
};

// The way back: data that was sent to be reduced comes back, and reduced data goes out.
Step mirror(const Step& up, int me) {
  Step down;
  down.tag = up.tag + 1;
  down.recvs = up.sends;
  for (const Reduction& reduction : up.reductions) {
    for (const int host : reduction.from) {
      if (host != me) down.sends.push_back({host, reduction.span, false});
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

Pieces blocks_by_host(const PlanInput& input) {
  const std::vector<int>& sizes = input.host_sizes;
  const std::size_t block = input.count / std::accumulate(sizes.begin(), sizes.end(), 0);
  Pieces pieces;
  std::size_t begin = 0;
  for (std::size_t host = 0; host < sizes.size(); ++host) {
    const std::size_t end = begin + block * sizes[host];
    pieces.push_back({{begin, end}, static_cast<int>(host)});
    begin = end;
  }
  return pieces;
}

int num_tags(const Node& tree) { return 2 * depth_of(tree) * most_rounds(tree); }

Pieces owners_of_sums(const Node& tree, std::size_t count, std::size_t unit) {
  struct Onlooker {
    void enter(const Node&) {}
    void part(const std::vector<int>&) {}
    void reduce(Span, std::size_t) {}
    void leave(const Node&, int) {}
  } onlooker;
  return Walk<Onlooker>(unit, &onlooker).run(tree, count);
}

Plan plan_allreduce(const Node& tree, int host, std::size_t count, std::size_t unit) {
  Planner planner(tree, host);
  Walk<Planner>(unit, &planner).run(tree, count);
  Plan plan = planner.take_plan();
  for (std::size_t i = plan.reducing; i-- > 0;) {
    plan.steps.push_back(mirror(plan.steps[i], host));
  }
  return plan;
}

}  // namespace ddl
