// The least time of any allreduce: no link carries less, and the farthest hosts must hear of each
// other.
#include <algorithm>
#include <vector>

#include "schedule/cost.h"
#include "schedule/rates.h"

namespace ddl {
namespace {

class Bound {
 public:
  Bound(const Rates& rates, double nbytes) : rates_(rates), nbytes_(nbytes) {}

  // Takes everything below and with `node` into account; bytes/s out of it at most.
  double capacity(const Node& node, bool is_root) {
    double rate = rates_.of(node);
    if (!node.is_host()) {
      double sum = 0;
      for (const Node& child : node.children) sum += capacity(child, false);
      rate = std::min(rate, sum);
      // The children, and the rest of the world behind this node's own link.
      const std::size_t k = node.children.size();
      least_ = std::max(least_, is_root ? passes(k, sum) : passes(k + 1, sum + rate));
    }
    if (!is_root) least_ = std::max(least_, nbytes_ / rate);
    return rate;
  }

  // All hosts as one partition.
  void add_hosts(const Node& tree) {
    std::vector<const Node*> hosts;
    collect(tree, &hosts);
    double sum = 0;
    for (const Node* host : hosts) sum += rates_.of(*host);
    least_ = std::max(least_, passes(hosts.size(), sum));
  }

  double least() const { return least_; }

 private:
  double passes(std::size_t parts, double rate) const {
    return 2 * static_cast<double>(parts - 1) * nbytes_ / rate;
  }

  static void collect(const Node& node, std::vector<const Node*>* hosts) {
    if (node.is_host()) hosts->push_back(&node);
    for (const Node& child : node.children) collect(child, hosts);
  }

  const Rates& rates_;
  double nbytes_;
  double least_ = 0;
};

// The longest way between two hosts below `node`; *up: from a host to above it.
double longest_way(const Node& node, const Rates& rates, double* up) {
  double longest = 0;
  double first = 0;
  double second = 0;
  for (const Node& child : node.children) {
    double way = 0;
    longest = std::max(longest, longest_way(child, rates, &way));
    second = std::max(second, std::min(first, way));
    first = std::max(first, way);
  }
  *up = first + rates.latency(node);
  return std::max(longest, first + second);
}

}  // namespace

double diameter(const Node& tree, const Rates& rates) {
  double up = 0;
  return longest_way(tree, rates, &up);
}

double lower_bound(const Node& tree, double nbytes, const Wire& wire) {
  if (tree.is_host()) return 0;
  const Rates rates(tree, wire);
  Bound bound(rates, nbytes);
  bound.capacity(tree, true);
  bound.add_hosts(tree);
  return std::max(bound.least(), diameter(tree, rates));
}

}  // namespace ddl
