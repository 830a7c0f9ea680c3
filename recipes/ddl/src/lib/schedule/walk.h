// The way of the data up a tree, from which one host's plan or the cost of all is made.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "schedule/route.h"
#include "schedule/shares.h"
#include "schedule/span.h"
#include "topology/tree.h"

namespace ddl {

// Visits the tree from the leaves to the root and calls the methods of `use`, in this order:
//   enter(node)       a node, before what is below it;
//   part(owners)      at a group: `owners[j]` holds child j's sum of the next part of the data;
//   reduce(span, j)   the sum of this piece of the part goes to owners[j], which owns it (route.h);
//   leave(node, depth)  the group is done; `depth` is its distance to the root.
// Borders of pieces are multiples of `unit` elements.
template <class Use>
class Walk {
 public:
  Walk(std::size_t unit, Use* use) : unit_(unit), use_(use) {}

  // Returns who owns which sums at the end.
  Pieces run(const Node& tree, std::size_t count) { return visit(tree, count, 0, 0); }

 private:
  // `above`: bytes per owned byte that the levels above will move.
  Pieces visit(const Node& node, std::size_t count, double above, int depth) {
    use_->enter(node);
    if (node.is_host()) return {{{0, count}, node.host}};
    std::vector<double> rates;
    for (const Node& child : node.children) rates.push_back(child.bandwidth());
    const std::size_t k = node.children.size();
    const std::vector<double> shares = shares_of(node.exchange, rates, above);

    std::vector<Pieces> owned(k);
    for (std::size_t j = 0; j < k; ++j) {
      const double load = above + 1 + shares[j] * static_cast<double>(k - 2);
      owned[j] = visit(node.children[j], count, load, depth + 1);
    }
    Pieces result = cut_parts(owned, shares, count);
    use_->leave(node, depth);
    return result;
  }

  // A ring is as fast as its slowest link, whatever the shares.
  static std::vector<double> shares_of(Exchange exchange, const std::vector<double>& rates,
                                       double above) {
    if (exchange == Exchange::kTree) return tree_shares(rates.size());
    if (exchange == Exchange::kRing) return std::vector<double>(rates.size(), 1.0 / rates.size());
    return balance_shares(rates, above);
  }

  // Cuts the data wherever the owner changes in any child, and every such part by the shares. The
  // children's owners of a part send each of its pieces to the owner that reduces it.
  Pieces cut_parts(const std::vector<Pieces>& owned, const std::vector<double>& shares,
                   std::size_t count) {
    const std::size_t k = owned.size();
    std::vector<std::size_t> at(k, 0);
    std::vector<int> owners(k);
    Pieces result;
    std::size_t begin = 0;
    while (begin < count) {
      std::size_t end = count;
      for (std::size_t j = 0; j < k; ++j) {
        while (owned[j][at[j]].span.end <= begin) ++at[j];
        owners[j] = owned[j][at[j]].host;
        end = std::min(end, owned[j][at[j]].span.end);
      }
      use_->part(owners);
      cut({begin, end}, shares, [&](std::size_t j, Span span) {
        if (result.empty() || result.back().host != owners[j]) {
          result.push_back({span, owners[j]});
        } else {
          result.back().span.end = span.end;
        }
        use_->reduce(span, j);
      });
      begin = end;
    }
    return result;
  }

  template <class Take>
  void cut(Span whole, const std::vector<double>& shares, const Take& take) const {
    const std::size_t units = (whole.count() + unit_ - 1) / unit_;
    double sum = 0;
    std::size_t begin = whole.begin;
    for (std::size_t j = 0; j < shares.size(); ++j) {
      sum += shares[j];
      const auto border = static_cast<std::size_t>(std::llround(sum * static_cast<double>(units)));
      const std::size_t end =
          j + 1 == shares.size() ? whole.end : std::min(whole.end, whole.begin + border * unit_);
      if (end > begin) take(j, Span{begin, end});
      begin = std::max(begin, end);
    }
  }

  std::size_t unit_;
  Use* use_;
};

}  // namespace ddl
