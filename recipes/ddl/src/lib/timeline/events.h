// What a timeline records. Times are those of Clock on this rank, in nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "base/wait.h"

namespace ddl {

inline std::int64_t nanoseconds(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// A collective of this rank, from its call, or its turn in the queue, to its end.
struct CollectiveEvent {
  // Schedules that are not those of schedule_kinds.h.
  static constexpr int kNone = -1;
  static constexpr int kWithinHost = -2;
  static constexpr int kOrdered = -3;      // reductions with -deterministic 1
  static constexpr int kPiggybacked = -4;  // small ones, with the agreement between hosts

  std::int64_t begin;
  std::int64_t end;
  std::uint64_t number;  // of the communicator's calls: the same on all of its ranks
  std::uint64_t bytes;
  const char* name;
  std::int32_t type;  // DDL_Type, or -1: it reduces nothing
  std::int32_t op;
  std::int32_t root;  // -1: it has none
  std::int32_t schedule;
  std::uint32_t group;  // as Timeline::add_group says
  bool is_fused;
  bool is_on_device;
  bool has_failed;
};

// A message between this rank and another: from its posting until it has come or gone.
struct MessageEvent {
  std::int64_t begin;
  std::int64_t end;
  std::uint64_t bytes;
  std::int32_t peer;  // rank of the job
  bool is_recv;
};

// The clock of a host beside that of rank 0.
struct ClockSample {
  std::int64_t at = 0;      // when it was measured, by the host's own clock
  std::int64_t offset = 0;  // rank 0's clock is the host's, and this
  std::int64_t error = 0;   // the offset is right within it, on both sides
};

// A communicator whose events are recorded.
struct TimelineGroup {
  std::int64_t id;         // the same on all of its ranks, and no other's
  std::vector<int> ranks;  // of the job
};

}  // namespace ddl
