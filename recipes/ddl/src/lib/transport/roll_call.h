// Before what MPI has all ranks wait for, without a limit: have all come, and for the same?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "error.h"
#include "transport/mpi.h"

namespace ddl {

// Tags of this one and the next, for each group of ranks that is being made.
constexpr int kRollCallTag = 1 << 17;

// Collective over `members`, ranks of `transport` of which this is one. The first of them waits for
// the others, and tells all who have come how it went. `alike` is what all must bring the same,
// `error` why this rank cannot take part.
//
// Throws on all who have come: DDL_ERROR_TIMEOUT naming those who have not, one member's `error`,
// DDL_ERROR_MISMATCH with two that are not alike.
void call_roll(MpiTransport& transport, const std::vector<int>& members, int tag,
               const std::string& alike, const std::optional<Error>& error = std::nullopt);

}  // namespace ddl
