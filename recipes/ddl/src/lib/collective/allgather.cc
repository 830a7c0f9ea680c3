// All-gather. On one host, every rank puts a piece of its block per chunk into shared memory.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/collectives.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

void allgather_on_host(Comm& comm, const std::byte* send, std::byte* recv, std::size_t nbytes) {
  HostGroup& host = comm.host();
  const std::size_t piece = host.chunk_bytes();
  std::size_t slot = host.take_slots((nbytes + piece - 1) / piece);
  for (std::size_t begin = 0; begin < nbytes; begin += piece, ++slot) {
    const std::size_t n = std::min(piece, nbytes - begin);
    // This area was read by all: they arrived at the last chunk since.
    copy_bytes(host.input(host.rank(), slot), send + begin, n);
    host.post_arrived();
    host.wait_all_arrived(host.arrived());
    for (int rank = 0; rank < comm.size(); ++rank) {
      std::byte* to = recv + rank * nbytes + begin;
      if (rank == comm.rank() && to == send + begin) continue;  // in place
      copy_bytes(to, host.input(rank, slot), n);
    }
  }
}

}  // namespace

void agreed::allgather(Comm& comm, const void* send, void* recv, std::size_t nbytes) {
  if (comm.num_hosts() > 1) {
    allgather_between_hosts(comm, send, recv, nbytes);
  } else {
    allgather_on_host(comm, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv),
                      nbytes);
  }
}

void allgather(Comm& comm, const void* send, void* recv, std::size_t nbytes) {
  if (nbytes > 0 && is_on_device(recv)) return comm.device().allgather(send, recv, nbytes);
  const Call call{Collective::kAllgather, 0, 0, 0, nbytes};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    if (nbytes > 0) agreed::allgather(comm, send, recv, nbytes);
  });
}

}  // namespace ddl
