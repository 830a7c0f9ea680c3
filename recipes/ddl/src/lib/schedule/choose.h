// The schedule for a size.
#pragma once

#include <cstddef>
#include <vector>

#include "schedule/arrange.h"
#include "schedule/cost.h"

namespace ddl {

// The radixes that make different trees of this one, kDirect first.
std::vector<int> useful_radixes(const Node& tree);

// kTree and kRing where a group is large enough for them to differ, else none.
std::vector<int> useful_exchanges(const Node& tree);

// The schedule for messages of `nbytes`. Among the radixes whose predicted time is hardly more than
// the least, it is the one with the fewest messages, and then the largest, since each level rounds
// 16-bit floats once more. A ring or trees are chosen only where they are predicted to be clearly
// faster. This is a pure function, so that all ranks, which have the same tree and call, choose
// alike.
int choose_schedule(const Node& tree, std::size_t nbytes, const Chunking& chunking);

}  // namespace ddl
