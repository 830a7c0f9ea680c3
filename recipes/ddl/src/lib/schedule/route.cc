#include "schedule/route.h"

namespace ddl {
namespace {

// The binary tree over 0 … k-1 in their order, all odd numbers leaves: below the root 0, the parent
// of n is n with its lowest one moved up by a place, or cleared where that is past the end.
class Tree {
 public:
  // `second`: mirrored or shifted by one, so that the inner nodes of the first are its leaves (but
  // one of an odd number, which has one child in each).
  Tree(std::size_t size, bool second) : size_(size), second_(second) {}

  std::size_t root() const { return in_group(0); }

  std::size_t parent(std::size_t child) const {
    const std::size_t n = in_tree(child);
    const std::size_t lowest = n & (~n + 1);
    const std::size_t up = (n ^ lowest) | lowest << 1;
    return in_group(up < size_ ? up : n ^ lowest);
  }

  int depth(std::size_t child) const {
    int steps = 0;
    for (; child != root(); child = parent(child)) ++steps;
    return steps;
  }

  // The way of number 1, the longest: log2 of the size, rounded up.
  int height() const {
    int steps = 0;
    while ((std::size_t{1} << steps) < size_) ++steps;
    return steps;
  }

 private:
  // Mirroring makes odd numbers even only where the size is even; shifting always does, but moves
  // the root of an even number next to itself.
  std::size_t in_tree(std::size_t child) const {
    if (!second_) return child;
    return size_ % 2 == 0 ? size_ - 1 - child : (child + size_ - 1) % size_;
  }
  std::size_t in_group(std::size_t n) const {
    if (!second_) return n;
    return size_ % 2 == 0 ? size_ - 1 - n : (n + 1) % size_;
  }

  std::size_t size_;
  bool second_;
};

Route direct_route(std::size_t children, std::size_t owner, std::size_t me) {
  if (me != owner) return {-1, {}, 0, owner};
  Route all{0, {}, -1, 0};
  for (std::size_t child = 0; child < children; ++child) all.from.push_back(child);
  return all;
}

Route ring_route(std::size_t children, std::size_t owner, std::size_t me) {
  Route next;
  const int round = static_cast<int>((me + children - owner - 1) % children);
  if (round > 0) {
    next.reduces = round - 1;
    next.from = {(me + children - 1) % children, me};
  }
  if (me != owner) {
    next.sends = round;
    next.to = (me + 1) % children;
  }
  return next;
}

Route tree_route(std::size_t children, std::size_t owner, std::size_t me) {
  const Tree tree(children, owner != Tree(children, false).root());
  const int from_below = num_rounds(Exchange::kTree, children) - tree.depth(me);
  Route up;
  for (std::size_t child = 0; child < children; ++child) {
    if (child == me || (child != tree.root() && tree.parent(child) == me)) up.from.push_back(child);
  }
  if (up.from.size() > 1) up.reduces = from_below - 1;
  if (me != tree.root()) {
    up.sends = from_below;
    up.to = tree.parent(me);
  }
  return up;
}

}  // namespace

Route route(Exchange exchange, std::size_t children, std::size_t owner, std::size_t me) {
  if (exchange == Exchange::kRing) return ring_route(children, owner, me);
  if (exchange == Exchange::kTree) return tree_route(children, owner, me);
  return direct_route(children, owner, me);
}

int num_rounds(Exchange exchange, std::size_t children) {
  if (exchange == Exchange::kRing) return static_cast<int>(children) - 1;
  if (exchange == Exchange::kTree) return Tree(children, false).height();
  return 1;
}

std::vector<double> tree_shares(std::size_t children) {
  std::vector<double> shares(children, 0.0);
  for (const bool second : {false, true}) shares[Tree(children, second).root()] = 0.5;
  return shares;
}

}  // namespace ddl
