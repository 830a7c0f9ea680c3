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

}  // namespace ddl
