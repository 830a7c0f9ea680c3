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

// Collective over `members`, ranks of `transport` of which this is one. The least of them waits for
// the others, and tells all how it went. `alike` is what all must bring the same, `error` why this
// rank cannot take part.
//
// Throws DDL_ERROR_MISMATCH with two that are not alike, or one member's `error`: on all. Throws
// DDL_ERROR_TIMEOUT naming those who have not come, or another error of a lost connection: on who
// has come; who comes later is told or has a timeout of its own. After these, old messages may be
// under way: nobody may call the roll on the same communicator again.
void call_roll(MpiTransport& transport, const std::vector<int>& members, int tag,
               const std::string& alike, const std::optional<Error>& error = std::nullopt);

// Whether call_roll has thrown this on all ranks, so that they can go on.
bool is_agreed(const Error& error);

}  // namespace ddl
