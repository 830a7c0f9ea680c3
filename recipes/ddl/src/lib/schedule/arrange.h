// Arranges the tree of hosts by a schedule. A schedule is a number: how many children of a group
// exchange with each other at once (a radix of 2 or more), or one of the constants.
#pragma once

#include <climits>
#include <string>

#include "topology/tree.h"

namespace ddl {

constexpr int kAnySchedule = 0;   // the cost model chooses, by size
constexpr int kDirect = INT_MAX;  // all of a group at once, however many
// No radix, but another exchange in each group (Exchange, in topology/tree.h):
constexpr int kRing = -1;
constexpr int kTree = -2;

// The same tree with rings or binary trees for groups of three or more, or with groups of at most
// the radix. A larger group is split into that many groups, or into a smaller number that divides
// its size. These are split again, and so on. The new groups have no link of their own. So where
// all are of one size, the bytes are the same, in log(k) steps of radix - 1 messages instead of one
// of k - 1. Radix 2 is recursive halving and doubling. Returns the tree as it is where the plan
// would need more tags than there are.
Node arrange(const Node& tree, int schedule);

// "direct", "halving", "radix:R", "ring" or "tree".
std::string name_of_schedule(int schedule);

}  // namespace ddl
