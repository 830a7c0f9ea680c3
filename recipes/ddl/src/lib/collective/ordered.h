// Reductions between hosts whose result does not depend on the topology (-deterministic 1): every
// element is summed at one place in the order of ranks, as on one host. No partial sums: an uplink
// carries what every rank behind it brings. Arguments as in collectives.h.
#pragma once

#include <cstddef>

#include "comm.h"

namespace ddl {

void allreduce_ordered(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                       DDL_Op op);
void reduce_scatter_ordered(Comm& comm, const void* send, void* recv, std::size_t recv_count,
                            DDL_Type type, DDL_Op op);

}  // namespace ddl
