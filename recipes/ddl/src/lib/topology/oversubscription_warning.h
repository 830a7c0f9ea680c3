// A warning at the start of a job whose ranks share processors by a wrong binding.
#pragma once

#include "topology/topology.h"
#include "transport/mpi.h"

namespace ddl {

// Collective over all ranks. The first host with such ranks is named on stderr, once for the job.
void warn_of_oversubscription(MpiTransport& transport, const Topology& topology);

}  // namespace ddl
