// Sets up the shared memory that the ranks of a new communicator have on each host.
#pragma once

#include "base/settings.h"
#include "schedule/cost.h"
#include "topology/topology.h"
#include "transport/host_group.h"
#include "transport/mpi.h"

namespace ddl {

// Collective over `transport`. Fails on every rank when one cannot have its memory, or has other
// settings than the others: nobody waits for a rank that failed.
HostGroup make_host_group(MpiTransport& transport, const Topology& topology,
                          const Settings& settings);

// The sizes to which messages between hosts are cut: a chunk fits into a slot of `host`.
Chunking chunking_for(const Topology& topology, const HostGroup& host);

}  // namespace ddl
