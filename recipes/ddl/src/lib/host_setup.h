// How the ranks of a new communicator set up the shared memory of their hosts.
#pragma once

#include "schedule/cost.h"
#include "settings.h"
#include "topology/topology.h"
#include "transport/host_group.h"
#include "transport/mpi.h"

namespace ddl {

// Collective over `transport`. Fails on every rank when one cannot have its memory, or has other
// settings than the others: nobody waits for a rank that failed.
HostGroup make_host_group(MpiTransport& transport, const Topology& topology,
                          const Settings& settings);

// How messages between hosts are cut, so that a chunk fits into a slot of `host`.
Chunking chunking_for(const Topology& topology, const HostGroup& host);

}  // namespace ddl
