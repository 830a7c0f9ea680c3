// MPI's tags in a communicator of ours, and on MPI_COMM_WORLD at the start: one table, so that no
// message of one kind is ever taken for another's.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <iterator>
#include <limits>

namespace ddl::tags {

struct Range {
  int first;
  int count;

  constexpr int end() const { return first + count; }
  constexpr int at(int index) const { return first + index; }
};

// Groups that are being made: MPI_Comm_create_group has their tags, as a program gives them to
// ddl_comm_create; a device's lanes; and the library's communicators for MPI's own, by a hash.
constexpr Range kProgramGroups{0, 32768};
constexpr Range kLaneGroups{kProgramGroups.end(), 1};
constexpr Range kMpiGroups{kLaneGroups.end(), 1 << 14};
constexpr Range kGroups{0, kMpiGroups.end()};

constexpr Range kCollective{kGroups.end(), 1};
constexpr Range kSetup{kCollective.end(), 1};
constexpr Range kPipeline{kSetup.end(), 1 << 14};
// Two for each group that is being made.
constexpr Range kMonitoredBarrier{kPipeline.end(), 2 * kGroups.count};
// Messages with large tags (mailbox.h), and the programs' own tags, as many as MPI has room for.
constexpr Range kLargeTag{kMonitoredBarrier.end(), 1};
constexpr Range kDirect{kLargeTag.end(), std::numeric_limits<int>::max() - kLargeTag.end()};

constexpr Range kAll[] = {kGroups,           kCollective, kSetup, kPipeline,
                          kMonitoredBarrier, kLargeTag,   kDirect};

constexpr bool are_apart(const Range* ranges, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (ranges[i].first < 0 || ranges[i].count < 1) return false;
    if (i > 0 && ranges[i].first < ranges[i - 1].end()) return false;
  }
  return true;
}

static_assert(are_apart(kAll, std::size(kAll)), "two kinds of messages share a tag");
constexpr Range kAllGroups[] = {kProgramGroups, kLaneGroups, kMpiGroups};
static_assert(are_apart(kAllGroups, std::size(kAllGroups)), "two kinds of groups share a tag");

// Of kProgramGroups, as ddl.h gives them to frameworks.
constexpr Range kFrameworks[] = {{0, DDL_TAGS_OF_PROGRAMS}, {DDL_TAG_JAX_GROUPS, 8000},
                                 {DDL_TAG_JAX_PROGRAM, 1},  {DDL_TAG_JAX_CALLS, 1},
                                 {DDL_TAG_TENSORFLOW, 1},   {DDL_TAG_HOROVOD, 3}};
static_assert(are_apart(kFrameworks, std::size(kFrameworks)), "two frameworks share a tag");
static_assert(kFrameworks[std::size(kFrameworks) - 1].end() == kProgramGroups.end());

}  // namespace ddl::tags
