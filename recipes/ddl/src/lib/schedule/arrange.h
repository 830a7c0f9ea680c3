// Arranges the tree of hosts by a schedule.
#pragma once

#include "base/schedule_kinds.h"
#include "topology/tree.h"

namespace ddl {

// The same tree with rings or binary trees for groups of three or more, or with groups of at most
// the radix. A larger group is split into that many groups, or into a smaller number that divides
// its size. These are split again, and so on. The new groups have no link of their own. So where
// all are of one size, the bytes are the same, in log(k) steps of radix - 1 messages instead of one
// of k - 1. Radix 2 is recursive halving and doubling. Returns the tree as it is where the plan
// would need more tags than there are.
Node arrange(const Node& tree, int schedule);

}  // namespace ddl
