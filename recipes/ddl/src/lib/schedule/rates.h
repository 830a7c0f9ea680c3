// The links' rates as a prediction takes them: the tree's, else Wire's.
#pragma once

#include <algorithm>
#include <limits>

#include "schedule/wire.h"
#include "topology/tree.h"

namespace ddl {

class Rates {
 public:
  Rates(const Node& tree, const Wire& wire) : wire_(wire) {
    add(tree);
    unknown_ = known_ > 0 ? sum_ / known_ : wire.bandwidth;
  }

  // Payload bytes/s of the node's link. A group's that is not known holds nobody back.
  double of(const Node& node) const {
    if (node.up.bandwidth > 0) return node.up.bandwidth * wire_.goodput;
    if (node.is_host()) return unknown_ * wire_.goodput;
    return std::numeric_limits<double>::infinity();
  }

  // Whether more can be sent into the node's link than it carries: by the hosts below, or to a host
  // by a faster one. Nobody knows of links that are not measured.
  bool is_narrow(const Node& node) const {
    constexpr double kAlike = 0.9;
    if (!are_measured()) return false;
    return of(node) < kAlike * (node.is_host() ? fastest_ * wire_.goodput : comes_from(node));
  }

  double latency(const Node& node) const {
    return node.is_host() && node.up.latency == 0 ? wire_.latency : node.up.latency;
  }

  double least_latency() const { return least_latency_; }  // of a host's link
  bool are_measured() const { return known_ == hosts_; }

 private:
  double comes_from(const Node& group) const {
    double sum = 0;
    for (const Node& child : group.children) {
      sum += child.is_host() ? of(child) : std::min(of(child), comes_from(child));
    }
    return sum;
  }

  void add(const Node& node) {
    for (const Node& child : node.children) add(child);
    if (!node.is_host()) return;
    ++hosts_;
    if (node.up.bandwidth > 0) ++known_;
    sum_ += node.up.bandwidth;
    fastest_ = std::max(fastest_, node.up.bandwidth);
    least_latency_ = std::min(least_latency_, latency(node));
  }

  const Wire wire_;
  int hosts_ = 0;
  int known_ = 0;
  double sum_ = 0;  // of the known hosts' bandwidths
  double fastest_ = 0;
  double unknown_ = 0;
  double least_latency_ = std::numeric_limits<double>::infinity();
};

// The latency of the longest way between two hosts.
double diameter(const Node& tree, const Rates& rates);

}  // namespace ddl
