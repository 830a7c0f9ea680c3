// The time of an allreduce between hosts, predicted from the tree, and the least that it can be.
#pragma once

#include <cstddef>
#include <string>

#include "schedule/wire.h"
#include "topology/tree.h"

namespace ddl {

// Chunks of a collective between hosts that are under way. comm/host_setup makes as many slots.
constexpr int kSlotsBetweenHosts = 16;

// Cuts a message between hosts into chunks that are under way together, and each chunk into one
// slice per lane. There should be enough chunks to fill the pipeline.
struct Chunking {
  std::size_t least_chunk = std::size_t{32} << 10;  // bytes
  std::size_t most_chunk = std::size_t{128} << 10;
  std::size_t wanted_chunks = 32;
  std::size_t slots = kSlotsBetweenHosts;
  std::size_t lanes = 1;  // ranks of a host that take part, each with its slice
  std::size_t width = 4;  // bytes per element

  std::size_t chunk_bytes(std::size_t nbytes) const;
};

// The chunks are as long as the widest group needs. A slice is cut once more, into a message for
// each of the group's children, which should be long against its overhead.
Chunking usual_chunking(const Node& tree, int lanes);

// The values that libddl assumes when it chooses. They are the defaults, but a message costs no
// more than the latency of a host's link, of which it is a part. This tells RDMA from TCP.
Wire usual_wire(const Node& tree);

struct Prediction {
  double seconds = 0;
  double bound = 0;   // no schedule takes less
  std::string limit;  // the slowest part: "links of rack0", "latency", …
  int steps = 0;
  std::size_t messages = 0;  // that the busiest rank sends for a chunk
  std::size_t chunk = 0;     // bytes
  std::size_t chunks = 0;
  // Chunks under way that keep the busiest link busy. A bottleneck is a link into which more can be
  // sent than it carries: more chunks only fill its queue, which drops packets when it is full.
  // Without one, and where links are not known: all slots.
  std::size_t window = 0;
};

// Whether every host's bandwidth is known; without, a prediction rests on Wire's.
bool is_measured(const Node& tree);

// The time of the plans that plan_allreduce makes for all hosts, of `tree` as arrange gave it,
// for a message of `nbytes`.
//
// A chunk alone takes, for each step, the latency of the way, the slowest link's bytes over its
// rate, and the busiest processor's messages. A further chunk adds its time on the busiest link or
// processor in all steps together (links carry both directions at once), or its share of the time
// that the window of `slots` chunks allows. First of all, the ranks agree on the call, in
// log2(hosts) messages.
Prediction predict_allreduce(const Node& tree, std::size_t nbytes, const Chunking& chunking,
                             const Wire& wire);

// The least time of an allreduce, whatever the schedule. All hosts' data must enter and leave each
// part of the tree through its link. Over all links of a partition into n parts, each byte must
// pass 2(n-1) times (Patarasuk and Yuan, 2009).
double lower_bound(const Node& tree, double nbytes, const Wire& wire);

}  // namespace ddl
