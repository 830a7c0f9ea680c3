// The collectives of communicators on several hosts, each a kind of pipeline.
#pragma once

#include "base/arguments.h"
#include "comm/comm.h"

namespace ddl {

void allreduce_between_hosts(Comm& comm, const Arguments& args);
void reduce_scatter_between_hosts(Comm& comm, const Arguments& args);
void allgather_between_hosts(Comm& comm, const Arguments& args);
void broadcast_between_hosts(Comm& comm, const Arguments& args);

}  // namespace ddl
