#include "schedule/arrange.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "schedule/plan.h"

namespace ddl {
namespace {

// Groups of one size leave whole pieces to exchange, so a divisor is better than the radix itself.
std::size_t number_of_groups(std::size_t n, std::size_t radix) {
  std::size_t parts = radix;
  while (parts > 1 && n % parts != 0) --parts;
  return parts > 1 ? parts : radix;
}

std::vector<Node> split(std::vector<Node> nodes, std::size_t radix) {
  if (nodes.size() <= radix) return nodes;
  const std::size_t parts = number_of_groups(nodes.size(), radix);
  std::vector<Node> groups;
  for (std::size_t i = 0; i < parts; ++i) {
    const auto begin = nodes.begin() + static_cast<long>(nodes.size() * i / parts);
    const auto end = nodes.begin() + static_cast<long>(nodes.size() * (i + 1) / parts);
    Node group;
    group.name = "part";
    group.children = split({std::make_move_iterator(begin), std::make_move_iterator(end)}, radix);
    groups.push_back(group.children.size() == 1 ? std::move(group.children[0]) : std::move(group));
  }
  return groups;
}

Node limit(const Node& node, std::size_t radix) {
  Node copy = node;
  for (Node& child : copy.children) child = limit(child, radix);
  copy.children = split(std::move(copy.children), radix);
  return copy;
}

Node with_exchange(const Node& node, Exchange exchange) {
  Node copy = node;
  if (copy.children.size() > 2) copy.exchange = exchange;  // two are alike in all
  for (Node& child : copy.children) child = with_exchange(child, exchange);
  return copy;
}

Node changed(const Node& tree, int schedule) {
  if (schedule == kRing) return with_exchange(tree, Exchange::kRing);
  if (schedule == kTree) return with_exchange(tree, Exchange::kTree);
  return limit(tree, static_cast<std::size_t>(schedule));
}

}  // namespace

Node arrange(const Node& tree, int schedule) {
  if (schedule == kDirect) return tree;
  Node limited = changed(tree, schedule);
  return num_tags(limited) <= kMaxTags ? limited : tree;
}

}  // namespace ddl
