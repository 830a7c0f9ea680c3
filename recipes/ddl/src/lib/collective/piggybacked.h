// Small collectives between hosts, whose data travel with the agreement on the call (piggybacking):
// ceil(log2(hosts)) messages one after the other in all. On a host, the first rank brings the data
// of all ranks together, and all read the result.
#pragma once

#include <cstdint>
#include <optional>

#include "base/arguments.h"
#include "comm/comm.h"

namespace ddl {

// Each returns the least `fusion` of all ranks' calls. Where a way of more messages moves fewer
// bytes and so is faster, there is no result, and nothing has been done.
std::optional<std::uint32_t> allreduce_piggybacked(Comm& comm, const Call& call,
                                                   const Arguments& args);
std::optional<std::uint32_t> reduce_piggybacked(Comm& comm, const Call& call,
                                                const Arguments& args);
std::optional<std::uint32_t> broadcast_piggybacked(Comm& comm, const Call& call,
                                                   const Arguments& args);
std::optional<std::uint32_t> allgather_piggybacked(Comm& comm, const Call& call,
                                                   const Arguments& args);

}  // namespace ddl
