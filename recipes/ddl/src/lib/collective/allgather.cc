// Allgather through shared memory. Local rank i receives, into its host's memory, what the ranks i,
// i + L, … (L: ranks here) of every other host bring: each byte crosses to a host once.
#include <algorithm>
#include <cstring>

#include "collective/collectives.h"

namespace ddl {
namespace {

void exchange_between_hosts(Comm& comm, std::byte* area, std::size_t stride, const std::byte* mine,
                            std::size_t n) {
  HostGroup& host = comm.host();
  Batch batch(comm.transport());
  for (int step = 1; step < comm.num_hosts(); ++step) {
    const int other = (comm.host_index() + step) % comm.num_hosts();
    const std::vector<int>& ranks = comm.topology().hosts()[other].ranks;
    for (std::size_t i = host.rank(); i < ranks.size(); i += host.size()) {
      batch.recv(area + ranks[i] * stride, n, ranks[i]);
    }
    batch.send(mine, n, ranks[host.rank() % ranks.size()]);
  }
  batch.wait();
}

void gather_chunks(Comm& comm, const std::byte* send, std::byte* recv, std::size_t nbytes) {
  HostGroup& host = comm.host();
  // As much as the smallest host has room for: all hosts must cut alike.
  const std::size_t room = (comm.num_lanes() + 1) * host.chunk_bytes();
  const std::size_t stride = room / comm.size() / 64 * 64;
  int parity = 0;
  for (std::size_t begin = 0; begin < nbytes; begin += stride, parity ^= 1) {
    const std::size_t n = std::min(stride, nbytes - begin);
    // This area was read by all: they arrived at the last chunk since.
    std::byte* area = host.area(parity);
    std::memcpy(area + comm.rank() * stride, send + begin, n);
    exchange_between_hosts(comm, area, stride, send + begin, n);
    host.post_arrived();
    host.wait_all_arrived(host.arrived());
    for (int rank = 0; rank < comm.size(); ++rank) {
      std::byte* to = recv + rank * nbytes + begin;
      if (rank == comm.rank() && to == send + begin) continue;  // in place
      std::memcpy(to, area + rank * stride, n);
    }
  }
}

}  // namespace

void allgather(Comm& comm, const void* send, void* recv, std::size_t nbytes) {
  const Call call{Collective::kAllgather, 0, 0, 0, nbytes};
  comm.run(call, [&] {
    comm.begin(call);
    gather_chunks(comm, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv), nbytes);
  });
}

}  // namespace ddl
