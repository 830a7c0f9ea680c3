// Broadcast. The root feeds its own host's shared memory and the first rank of every other host,
// which feeds its host. Two chunks are in flight: one is written while the other is read.
#include <algorithm>
#include <cstring>

#include "collective/collectives.h"

namespace ddl {
namespace {

void broadcast_chunks(Comm& comm, std::byte* buffer, std::size_t nbytes, int root) {
  HostGroup& host = comm.host();
  const Topology& topology = comm.topology();
  const bool is_root = comm.rank() == root;
  const int root_host = topology.host_index(root);
  const int writer = comm.host_index() == root_host ? topology.local_rank(root) : 0;
  const std::size_t chunk = host.chunk_bytes();
  const std::uint32_t arrived = host.arrived();
  const std::uint32_t done = host.done();

  std::uint32_t c = 0;
  for (std::size_t begin = 0; begin < nbytes; begin += chunk, ++c) {
    const std::size_t n = std::min(chunk, nbytes - begin);
    std::byte* shared = host.output(c & 1);
    if (host.rank() == writer) {
      if (c >= 2) host.wait_all_done(done + c - 1);  // all have read the chunk before the last
      Batch batch(comm.transport());
      if (is_root) {
        for (int h = 0; h < comm.num_hosts(); ++h) {
          if (h != root_host) batch.send(buffer + begin, n, topology.hosts()[h].ranks[0]);
        }
        std::memcpy(shared, buffer + begin, n);
      } else {
        batch.recv(shared, n, root);
      }
      if (!is_root) batch.wait();
      host.post_arrived();
      if (is_root) batch.wait();
    } else {
      host.post_arrived();  // keeps the counters of all ranks equal
      host.wait_arrived(writer, arrived + c + 1);
    }
    if (!is_root) std::memcpy(buffer + begin, shared, n);
    host.post_done();
  }
}

}  // namespace

void broadcast(Comm& comm, void* buffer, std::size_t nbytes, int root) {
  const Call call{Collective::kBroadcast, 0, 0, root, nbytes};
  comm.run(call, [&] {
    comm.begin(call);
    broadcast_chunks(comm, static_cast<std::byte*>(buffer), nbytes, root);
  });
}

void barrier(Comm& comm) {
  const Call call{Collective::kBarrier, 0, 0, 0, 0};
  comm.run(call, [&] { comm.begin(call); });
}

}  // namespace ddl
