// Reduce-scatter. On one host, every rank puts a piece of each block per chunk into shared memory,
// and sums the pieces of its own.
#include <algorithm>
#include <vector>

#include "collective/between_hosts.h"
#include "collective/collectives.h"
#include "collective/ordered.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

void reduce_scatter_on_host(Comm& comm, const std::byte* send, std::byte* recv, std::size_t count,
                            DDL_Type type, DDL_Op op) {
  HostGroup& host = comm.host();
  const std::size_t width = size_of(type);
  const std::size_t piece = host.chunk_bytes() / width / comm.size();
  const int me = comm.rank();
  std::vector<const void*> inputs(comm.size());
  std::size_t slot = host.take_slots((count + piece - 1) / piece);
  for (std::size_t begin = 0; begin < count; begin += piece, ++slot) {
    const std::size_t n = std::min(piece, count - begin);
    // This area's inputs were read by all: they arrived at the last chunk since.
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (rank == me) continue;  // read where it is
      copy_bytes(host.input(me, slot) + rank * piece * width, send + (rank * count + begin) * width,
                 n * width);
    }
    host.post_arrived();
    host.wait_all_arrived(host.arrived());
    for (int rank = 0; rank < comm.size(); ++rank) {
      inputs[rank] = host.input(rank, slot) + me * piece * width;
    }
    inputs[me] = send + (me * count + begin) * width;
    reduce_function(type, op)(recv + begin * width, inputs.data(), comm.size(), n,
                              op == DDL_OP_AVERAGE ? comm.size() : 1.0);
  }
}

}  // namespace

void agreed::reduce_scatter(Comm& comm, const void* send, void* recv, std::size_t recv_count,
                            DDL_Type type, DDL_Op op) {
  if (comm.num_hosts() > 1 && comm.is_deterministic()) {
    reduce_scatter_ordered(comm, send, recv, recv_count, type, op);
  } else if (comm.num_hosts() > 1) {
    reduce_scatter_between_hosts(comm, send, recv, recv_count, type, op);
  } else {
    reduce_scatter_on_host(comm, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv),
                           recv_count, type, op);
  }
}

void reduce_scatter(Comm& comm, const void* send, void* recv, std::size_t recv_count, DDL_Type type,
                    DDL_Op op) {
  if (recv_count > 0 && is_on_device(recv)) {
    return comm.device().reduce_scatter(send, recv, recv_count, type, op);
  }
  const Call call{Collective::kReduceScatter, static_cast<std::uint32_t>(type),
                  static_cast<std::uint32_t>(op), 0, recv_count};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    if (recv_count > 0) agreed::reduce_scatter(comm, send, recv, recv_count, type, op);
  });
}

}  // namespace ddl
