// The schedules of a reduction between hosts. A schedule is a number: how many children of a group
// exchange with each other at once (a radix of 2 or more), or one of these constants.
#pragma once

#include <climits>

namespace ddl {

constexpr int kAnySchedule = 0;   // the cost model chooses, by size
constexpr int kDirect = INT_MAX;  // all of a group at once, however many
// No radix, but another exchange in each group (Exchange, in topology/tree.h):
constexpr int kRing = -1;
constexpr int kTree = -2;

}  // namespace ddl
