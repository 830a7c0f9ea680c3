// Broadcast. On one host, the root writes a chunk to shared memory while the others read the one
// before.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/collectives.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

void broadcast_on_host(Comm& comm, std::byte* buffer, std::size_t nbytes, int root) {
  HostGroup& host = comm.host();
  const bool is_root = comm.rank() == root;
  const int writer = comm.topology().local_rank(root);
  const std::size_t chunk = host.chunk_bytes();
  const std::uint32_t arrived = host.arrived();
  const std::uint32_t done = host.done();

  const auto slots = static_cast<std::uint32_t>(host.slots());
  const std::size_t first = host.take_slots((nbytes + chunk - 1) / chunk);
  std::uint32_t c = 0;
  for (std::size_t begin = 0; begin < nbytes; begin += chunk, ++c) {
    const std::size_t n = std::min(chunk, nbytes - begin);
    std::byte* shared = host.output(first + c);
    if (is_root) {
      if (c >= slots) host.wait_all_done(done + c + 1 - slots);  // all have read what was there
      copy_bytes(shared, buffer + begin, n);
      host.post_arrived();
    } else {
      host.post_arrived();  // keeps the counters of all ranks equal
      host.wait_arrived(writer, arrived + c + 1);
      copy_bytes(buffer + begin, shared, n);
    }
    host.post_done();
  }
}

}  // namespace

void agreed::broadcast(Comm& comm, void* buffer, std::size_t nbytes, int root) {
  if (comm.num_hosts() > 1) {
    broadcast_between_hosts(comm, buffer, nbytes, root);
  } else {
    broadcast_on_host(comm, static_cast<std::byte*>(buffer), nbytes, root);
  }
}

void broadcast(Comm& comm, void* buffer, std::size_t nbytes, int root) {
  if (nbytes > 0 && is_on_device(buffer)) return comm.device().broadcast(buffer, nbytes, root);
  const Call call{Collective::kBroadcast, 0, 0, root, nbytes};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    if (nbytes > 0) agreed::broadcast(comm, buffer, nbytes, root);
  });
}

void barrier(Comm& comm) {
  const Call call{Collective::kBarrier, 0, 0, 0, 0};
  comm.run(call, [&] { comm.agreement().begin(call); });
}

}  // namespace ddl
