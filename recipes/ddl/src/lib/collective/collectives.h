// The collectives. Arguments are checked by the caller (c_api.cc); sizes may be 0; `send` and
// `recv` are as ddl.h says. All throw Error.
#pragma once

#include <cstddef>

#include "comm.h"

namespace ddl {

// These four also take buffers on a GPU, then both of them.
void allreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
               DDL_Op op);
void reduce_scatter(Comm& comm, const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                    DDL_Op op);
void broadcast(Comm& comm, void* buffer, std::size_t nbytes, int root);
void allgather(Comm& comm, const void* send, void* recv, std::size_t nbytes);

void barrier(Comm& comm);
void gather(Comm& comm, const void* send, void* recv, std::size_t nbytes, int root);
void scatter(Comm& comm, const void* send, void* recv, std::size_t nbytes, int root);
void alltoall(Comm& comm, const void* send, void* recv, std::size_t nbytes);
void alltoallv(Comm& comm, const void* send, const std::size_t* send_bytes,
               const std::size_t* send_offsets, void* recv, const std::size_t* recv_bytes,
               const std::size_t* recv_offsets);

// In host memory; the ranks have just agreed on the call (Agreement::begin), and there is something
// to move.
namespace agreed {

void allreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
               DDL_Op op);
void reduce_scatter(Comm& comm, const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                    DDL_Op op);
void broadcast(Comm& comm, void* buffer, std::size_t nbytes, int root);
void allgather(Comm& comm, const void* send, void* recv, std::size_t nbytes);

}  // namespace agreed

}  // namespace ddl
