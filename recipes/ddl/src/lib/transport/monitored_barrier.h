// A barrier with a timeout that names the ranks which have not come, as torch.distributed's
// monitored_barrier. It comes before calls of MPI that wait for all ranks without a limit.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "transport/mpi.h"

namespace ddl {

// Collective over `members`, ranks of `transport` of which this is one; `group` is the tag of the
// group that they make (tags::kGroups), and parts this barrier from others. The least of them
// waits for the others, and tells all how it went. All must bring the same text `alike`; `error`
// says why this rank cannot take part.
//
// Throws DDL_ERROR_MISMATCH with two that are not alike, or one member's `error`: on all. Throws
// DDL_ERROR_TIMEOUT naming the ranks that have not come, or another error of a lost connection, on
// the ranks that have come. A rank that comes later is told or has a timeout of its own. After
// these errors, old messages may be under way, so no other barrier may follow on the communicator.
void monitored_barrier(MpiTransport& transport, const std::vector<int>& members, int group,
                       const std::string& alike, const std::optional<Error>& error = std::nullopt);

// Whether monitored_barrier has thrown this on all ranks, so that they can go on.
bool is_agreed(const Error& error);

}  // namespace ddl
