// Small collectives between hosts, whose data travel with the agreement on the call (piggybacking):
// ceil(log2(hosts)) messages one after the other in all. On a host, the first rank brings the data
// of all ranks together, and all read the result.
#pragma once

#include <cstdint>
#include <optional>

#include "base/arguments.h"
#include "comm/comm.h"

namespace ddl {

// As Row::at_once: false where a way of more messages moves fewer bytes and so is faster, and on
// one host; nothing has been done then.
bool reduce_piggybacked(Comm& comm, const Call& call, const Arguments& args);
bool broadcast_piggybacked(Comm& comm, const Call& call, const Arguments& args);
bool allgather_piggybacked(Comm& comm, const Call& call, const Arguments& args);
// The same, but the result is the least `fusion` of all ranks' calls, or none.
std::optional<std::uint32_t> allreduce_piggybacked(Comm& comm, const Call& call,
                                                   const Arguments& args);

}  // namespace ddl
