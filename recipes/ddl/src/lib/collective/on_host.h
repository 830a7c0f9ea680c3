// Allreduce among the ranks of one host. Arguments as in collectives.h; the ranks have agreed on
// the call, and there is something to reduce.
#pragma once

#include <cstddef>

#include "comm.h"

namespace ddl {

void allreduce_on_host(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                       DDL_Op op);

}  // namespace ddl
