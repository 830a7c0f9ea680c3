#include "topology/tree.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <numeric>

namespace ddl {
namespace {

// Digits compare as numbers. Names that differ only in leading zeros compare as text.
bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  const auto number = [&](const std::string& text, std::size_t* at) {
    while (*at < text.size() && text[*at] == '0') ++*at;
    const std::size_t begin = *at;
    while (*at < text.size() && is_digit(text[*at])) ++*at;
    return text.substr(begin, *at - begin);
  };
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string x = number(a, &i);
      const std::string y = number(b, &j);
      if (x.size() != y.size()) return x.size() < y.size();
      if (x != y) return x < y;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  if (i == a.size() && j == b.size()) return a < b;
  return i == a.size();
}

Node leaf(const std::string& name, int host) {
  Node node;
  node.name = name;
  node.host = host;
  return node;
}

void join_links(const Link& outer, Link* inner) {
  if (outer.bandwidth > 0) {
    inner->bandwidth =
        inner->bandwidth > 0 ? std::min(inner->bandwidth, outer.bandwidth) : outer.bandwidth;
  }
  inner->latency += outer.latency;
}

std::string describe_link(const Link& link) {
  if (link.bandwidth == 0 && link.latency == 0) return "";
  char text[80];
  std::snprintf(text, sizeof(text), " (%.4g Gbit/s, %.4g us)", link.bandwidth * 8e-9,
                link.latency * 1e6);
  return text;
}

void describe_into(const Node& node, int depth, std::string* text) {
  *text += std::string(2 * static_cast<std::size_t>(depth), ' ') + node.name +
           describe_link(node.up) + "\n";
  for (const Node& child : node.children) describe_into(child, depth + 1, text);
}

}  // namespace

int Node::num_hosts() const {
  if (is_host()) return 1;
  int sum = 0;
  for (const Node& child : children) sum += child.num_hosts();
  return sum;
}

int Node::widest() const {
  int most = static_cast<int>(children.size());
  for (const Node& child : children) most = std::max(most, child.widest());
  return most;
}

double Node::bandwidth() const {
  if (up.bandwidth > 0) return up.bandwidth;
  double sum = 0;
  for (const Node& child : children) {
    const double part = child.bandwidth();
    if (part == 0) return 0;
    sum += part;
  }
  return sum;
}

Node flat_tree(const std::vector<std::string>& host_names) {
  Node root;
  root.name = "cluster";
  for (std::size_t i = 0; i < host_names.size(); ++i) {
    root.children.push_back(leaf(host_names[i], static_cast<int>(i)));
  }
  return root;
}

Node tree_of_sizes(const std::vector<std::string>& host_names, const std::vector<int>& sizes) {
  std::vector<int> order(host_names.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return natural_less(host_names[a], host_names[b]); });
  std::vector<Node> level;
  for (const int host : order) level.push_back(leaf(host_names[host], host));
  int depth = 0;
  for (const int size : sizes) {
    std::vector<Node> groups;
    for (std::size_t begin = 0; begin < level.size(); begin += size) {
      Node group;
      group.name = "group" + std::to_string(depth) + "." + std::to_string(groups.size());
      for (std::size_t i = begin; i < std::min(level.size(), begin + size); ++i) {
        group.children.push_back(std::move(level[i]));
      }
      groups.push_back(std::move(group));
    }
    level = std::move(groups);
    ++depth;
  }
  Node root;
  root.name = "cluster";
  root.children = std::move(level);
  return without_groups_of_one(root);
}

Node without_groups_of_one(const Node& tree) {
  std::vector<int> all(tree.num_hosts());
  std::iota(all.begin(), all.end(), 0);
  return select_hosts(tree, all);
}

Node select_hosts(const Node& tree, const std::vector<int>& new_index) {
  Node copy;
  copy.name = tree.name;
  copy.up = tree.up;
  if (tree.is_host()) {
    copy.host = tree.host < 0 ? -1 : new_index[tree.host];
    copy.sockets = tree.sockets;
    return copy;
  }
  for (const Node& child : tree.children) {
    Node part = select_hosts(child, new_index);
    if (!part.is_host() || part.host >= 0) copy.children.push_back(std::move(part));
  }
  if (copy.children.size() != 1) return copy;
  Node only = std::move(copy.children.front());
  join_links(copy.up, &only.up);
  return only;
}

std::string describe_tree(const Node& tree) {
  std::string text;
  describe_into(tree, 0, &text);
  return text;
}

}  // namespace ddl
