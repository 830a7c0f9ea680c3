// The collectives of communicators on several hosts, each a kind of pipeline.
#pragma once

#include "arguments.h"
#include "comm.h"

namespace ddl {

void allreduce_between_hosts(Comm& comm, const Arguments& args);
void reduce_scatter_between_hosts(Comm& comm, const Arguments& args);
void allgather_between_hosts(Comm& comm, const Arguments& args);
void broadcast_between_hosts(Comm& comm, const Arguments& args);

}  // namespace ddl
