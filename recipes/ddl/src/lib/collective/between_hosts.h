// The collectives of communicators on several hosts, each a kind of pipeline. Arguments as in
// collectives.h; the ranks have agreed on the call, and there is something to move.
#pragma once

#include <cstddef>

#include "comm.h"

namespace ddl {

void allreduce_between_hosts(Comm& comm, const void* send, void* recv, std::size_t count,
                             DDL_Type type, DDL_Op op);
void reduce_scatter_between_hosts(Comm& comm, const void* send, void* recv, std::size_t recv_count,
                                  DDL_Type type, DDL_Op op);
void allgather_between_hosts(Comm& comm, const void* send, void* recv, std::size_t nbytes);
void broadcast_between_hosts(Comm& comm, void* buffer, std::size_t nbytes, int root);

// How an average is divided. 16-bit floats are summed in float32 and rounded once per level: inside
// the host, and at every level of the tree. Their averages are divided by a power of two on the
// first level, so that no sum overflows, and by the rest on the last.
struct Divisors {
  Divisors(int ranks, DDL_Type type, DDL_Op op);
  double first = 1.0;  // of the sum on the host
  double last = 1.0;   // of the last sum between hosts
};

}  // namespace ddl
