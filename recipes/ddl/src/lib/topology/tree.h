// The cluster as a tree: hosts are the leaves, racks, rows and pods the inner nodes.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// The link from a node to its parent, the same in both directions. 0: not known.
struct Link {
  double bandwidth = 0;  // bytes/s
  double latency = 0;    // s
};

// The exchange in a group: it brings the children's parts of a piece to the child that owns its
// sum, and the result back (see schedule/route.h).
enum class Exchange { kDirect, kRing, kTree };

struct Node {
  std::string name;
  Link up;
  int host = -1;  // a leaf: its index among the job's hosts
  std::vector<Node> children;
  Exchange exchange = Exchange::kDirect;  // of the children
  int sockets = 0;  // a leaf: its ranks are spread over so many, in order; 0: as the host says

  bool is_host() const { return children.empty(); }
  int num_hosts() const;
  int widest() const;  // the most children of any node
  // The bandwidth out of this node: that of its link, or of its children together.
  double bandwidth() const;
};

// All hosts side by side.
Node flat_tree(const std::vector<std::string>& host_names);

// Hosts in the natural order of their names (node9 before node10), `sizes[0]` of them in a rack,
// `sizes[1]` racks in the next group, and so on. The product of the sizes is the number of hosts.
Node tree_of_sizes(const std::vector<std::string>& host_names, const std::vector<int>& sizes);

// The part of `tree` that holds the hosts with `new_index[host] >= 0`, which get that index. Groups
// with one child are replaced by it: the narrower of the two links, and both latencies.
Node select_hosts(const Node& tree, const std::vector<int>& new_index);

// All of `tree`, so replaced.
Node without_groups_of_one(const Node& tree);

// "rack0 (200 Mbit/s): h0 h1; …", a line per group, for people.
std::string describe_tree(const Node& tree);

}  // namespace ddl
