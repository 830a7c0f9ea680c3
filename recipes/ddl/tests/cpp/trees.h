// Trees for tests.
#pragma once

#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "topology/tree.h"

namespace ddl {

inline Node host(int index, double bandwidth = 0) {
  Node node;
  node.name = "h" + std::to_string(index);
  node.host = index;
  node.up.bandwidth = bandwidth;
  return node;
}

inline Node group(std::vector<Node> children, double bandwidth = 0) {
  Node node;
  node.name = "group";
  node.up.bandwidth = bandwidth;
  node.children = std::move(children);
  return node;
}

// `n` hosts side by side.
inline Node flat(int n, double bandwidth = 0) {
  std::vector<Node> hosts;
  for (int i = 0; i < n; ++i) hosts.push_back(host(i, bandwidth));
  return group(std::move(hosts));
}

// A tree of up to `depth` levels and `width` children a group; hosts are numbered through *next.
// Every third link is not known, unless all have to be.
inline Node draw_tree(std::mt19937& random, int depth, int width, bool is_known, int* next) {
  const auto draw = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  double bandwidth = std::pow(2.0, draw(6));
  if (draw(3) == 0 && !is_known) bandwidth = 0;
  if (depth == 0 || draw(5) == 0) return host((*next)++, bandwidth);
  std::vector<Node> children;
  const int n = 1 + draw(width);
  for (int i = 0; i < n; ++i) {
    children.push_back(draw_tree(random, depth - 1, width, is_known, next));
  }
  return group(std::move(children), bandwidth);
}

struct DrawnTree {
  Node tree;
  int hosts;
};

// Wide ones are shallow: 40 hosts at most.
inline DrawnTree draw_tree(std::mt19937& random, bool is_wide, bool is_known) {
  DrawnTree drawn{{}, 0};
  const int depth = is_wide ? 1 : 1 + static_cast<int>(random() % 4);
  const Node tree = draw_tree(random, depth, is_wide ? 40 : 5, is_known, &drawn.hosts);
  std::vector<int> all(drawn.hosts);
  std::iota(all.begin(), all.end(), 0);
  drawn.tree = select_hosts(tree, all);
  return drawn;
}

}  // namespace ddl
