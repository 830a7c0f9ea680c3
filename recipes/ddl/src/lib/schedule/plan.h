// The plan of one host in a collective between hosts: messages and reductions in steps.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/span.h"
#include "topology/tree.h"

namespace ddl {

// Part `index` of `count` elements cut into `parts`, on 64-element borders so that slices do not
// share cache lines.
Span part_of(std::size_t count, int parts, int index);

struct Transfer {
  int host;  // the other side
  Span span;
  bool is_given = false;  // the host's own data, not a sum or a result
};

// The element-wise sum, over `from` in this order, of their parts of `span`; one is this host.
struct Reduction {
  Span span;
  std::vector<int> from;
  std::size_t inbox = 0;  // element of the inbox where the others' parts go, one after the other
};

// A reduce-scatter step sends `sends` and carries out `reductions`; an all-gather step sends
// `sends` and puts `recvs` in place. A step begins when the one before has received all.
struct Step {
  int tag = 0;  // the same on both sides of a message, and of no other step; below kMaxTags
  std::vector<Transfer> sends;
  std::vector<Reduction> reductions;
  std::vector<Transfer> recvs;
};

constexpr int kMaxTags = 1024;

// The number of tags that the plans of a tree take.
int num_tags(const Node& tree);

// Steps that reduce come before those that only move.
struct Plan {
  std::vector<Step> steps;
  std::size_t reducing = 0;  // steps that reduce; the last of them is among the root's children
  std::size_t given = 0;     // steps of the lowest group, in which the host adds its own data
  std::size_t inbox = 0;     // elements that all reductions together receive
};

// Elements: parts that two hosts reduce do not share a cache line.
constexpr std::size_t kPlanUnit = 64;

// The input of a collective's plan. All hosts have the same but for `host`.
struct PlanInput {
  const Node& tree;                    // as arrange gave it
  int host;                            // whose plan it is
  int root;                            // host; of collectives with a root
  std::size_t count;                   // elements of a slice
  const std::vector<int>& host_sizes;  // ranks of each host
};

// The parts of the hosts in a slice that has a block of every rank, host by host.
Pieces blocks_by_host(const PlanInput& input);

// Multi-dimensional reduce-scatter and all-gather on the tree (BlueConnect, MLSys 2019, on a tree
// instead of a grid). Upwards, the children of every group exchange the parts that they own, so
// that each element ends with one owner in the group, by the group's Exchange (route.h); shares
// follow the bandwidths. Downwards, results go the same way back. Groups need not be alike: borders
// of parts are merged, nothing is padded.
//
// Every host computes the same tree, so that the parts of all hosts fit. Borders of parts are
// multiples of `unit` elements.
Plan plan_allreduce(const Node& tree, int host, std::size_t count, std::size_t unit);

// The owners of the sums after the steps of plan_allreduce that reduce.
Pieces owners_of_sums(const Node& tree, std::size_t count, std::size_t unit);

}  // namespace ddl
