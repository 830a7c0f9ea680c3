// The plans of the collectives that take every part of the data to all hosts, and back.
#pragma once

#include <cstddef>

#include "schedule/plan.h"
#include "topology/tree.h"

namespace ddl {

// `owned` says who has which part; every host ends with all of it. From the root downwards, the
// children of every group give each other the parts that the others have not. A part enters a group
// once, at one of its hosts, which passes it on inside. The parts that a group gets are spread over
// its hosts by their bandwidths, so that all links of the next level are used.
Plan plan_allgather(const Node& tree, int host, const Pieces& owned, std::size_t unit);

// The same messages the other way round, sums instead of copies: every part ends, summed over all
// hosts, with its owner.
Plan plan_reduce_scatter(const Node& tree, int host, const Pieces& owned, std::size_t unit);

// The data goes from `root` to all. In every group that the root is in, it first scatters the parts
// that only it has over the children, which give them to each other (van de Geijn's scatter and
// all-gather). So its own link carries the data twice at most, however many hosts there are.
Plan plan_broadcast(const Node& tree, int host, int root, std::size_t count, std::size_t unit);

}  // namespace ddl
