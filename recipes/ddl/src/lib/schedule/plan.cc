#include "schedule/plan.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "schedule/shares.h"

namespace ddl {
namespace {

class Planner {
 public:
  Planner(int host, std::size_t unit) : me_(host), unit_(unit) {}

  // `above`: bytes per owned byte that the levels above will move.
  // `depth`: of the node below the root.
  Pieces visit(const Node& node, std::size_t count, double above, int depth) {
    if (node.is_host()) return {{{0, count}, node.host}};
    std::vector<double> rates;
    for (const Node& child : node.children) rates.push_back(child.bandwidth());
    const std::vector<double> shares = balance_shares(rates, above);
    const std::size_t k = node.children.size();

    std::vector<Pieces> owned(k);
    std::size_t mine = k;  // the child that holds this host
    for (std::size_t j = 0; j < k; ++j) {
      const double load = above + 1 + shares[j] * static_cast<double>(k - 2);
      const std::size_t before = steps_.size();
      owned[j] = visit(node.children[j], count, load, depth + 1);
      if (steps_.size() > before || holds_me(node.children[j])) mine = j;
    }
    return exchange(owned, shares, mine, count, depth);
  }

  Plan take_plan() {
    const std::size_t reducing = steps_.size();
    return {std::move(steps_), reducing, inbox_};
  }

 private:
  bool holds_me(const Node& node) const { return node.is_host() && node.host == me_; }

  // Cuts the data wherever the owner changes in any child, and every such part by the shares. The
  // children's owners of a part send each of its pieces to the owner that reduces it.
  Pieces exchange(const std::vector<Pieces>& owned, const std::vector<double>& shares,
                  std::size_t mine, std::size_t count, int depth) {
    const std::size_t k = owned.size();
    std::vector<std::size_t> at(k, 0);
    Pieces result;
    Step step;
    step.tag = 2 * depth;
    std::size_t begin = 0;
    while (begin < count) {
      std::size_t end = count;
      std::vector<int> owners(k);
      for (std::size_t j = 0; j < k; ++j) {
        while (owned[j][at[j]].span.end <= begin) ++at[j];
        owners[j] = owned[j][at[j]].host;
        end = std::min(end, owned[j][at[j]].span.end);
      }
      cut({begin, end}, shares, [&](std::size_t j, Span span) {
        if (result.empty() || result.back().host != owners[j]) {
          result.push_back({span, owners[j]});
        } else {
          result.back().span.end = span.end;
        }
        if (mine == k || owners[mine] != me_) return;
        if (j == mine) {
          step.reductions.push_back({span, owners, inbox_});
          inbox_ += span.count() * (k - 1);
        } else {
          step.sends.push_back({owners[j], span});
        }
      });
      begin = end;
    }
    if (mine < k) steps_.push_back(std::move(step));
    return result;
  }

  template <class Use>
  void cut(Span whole, const std::vector<double>& shares, const Use& use) const {
    const std::size_t units = (whole.count() + unit_ - 1) / unit_;
    double sum = 0;
    std::size_t begin = whole.begin;
    for (std::size_t j = 0; j < shares.size(); ++j) {
      sum += shares[j];
      const auto border = static_cast<std::size_t>(std::llround(sum * static_cast<double>(units)));
      const std::size_t end =
          j + 1 == shares.size() ? whole.end : std::min(whole.end, whole.begin + border * unit_);
      if (end > begin) use(j, Span{begin, end});
      begin = std::max(begin, end);
    }
  }

  int me_;
  std::size_t unit_;
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
  Planner planner(host, unit);
  planner.visit(tree, count, 0, 0);
  Plan plan = planner.take_plan();
  for (std::size_t i = plan.reducing; i-- > 0;) {
    plan.steps.push_back(mirror(plan.steps[i], host));
  }
  return plan;
}

}  // namespace ddl
