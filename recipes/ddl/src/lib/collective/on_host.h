// Allreduce among the ranks of one host.
#pragma once

#include "base/arguments.h"
#include "comm/comm.h"

namespace ddl {

void allreduce_on_host(Comm& comm, const Arguments& args);

}  // namespace ddl
