// The collectives that move each byte to one rank only: direct messages, which MPI sends through
// shared memory or the network as fits.
#include "collective/exchange.h"

#include "collective/collectives.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

const std::byte* at(const void* buffer, std::size_t offset) {
  return static_cast<const std::byte*>(buffer) + offset;
}

std::byte* at(void* buffer, std::size_t offset) { return static_cast<std::byte*>(buffer) + offset; }

void copy_own(void* to, const void* from, std::size_t nbytes) {
  if (nbytes > 0 && to != from) copy_bytes(to, from, nbytes);
}

}  // namespace

void gather(Comm& comm, const void* send, void* recv, std::size_t nbytes, int root) {
  const Call call{Collective::kGather, 0, 0, root, nbytes};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    Batch batch(comm.transport());
    if (comm.rank() != root) {
      batch.send(send, nbytes, root);
    } else {
      for (int rank = 0; rank < comm.size(); ++rank) {
        if (rank != root) batch.recv(at(recv, rank * nbytes), nbytes, rank);
      }
      copy_own(at(recv, root * nbytes), send, nbytes);
    }
    batch.wait();
  });
}

void scatter(Comm& comm, const void* send, void* recv, std::size_t nbytes, int root) {
  const Call call{Collective::kScatter, 0, 0, root, nbytes};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    Batch batch(comm.transport());
    if (comm.rank() != root) {
      batch.recv(recv, nbytes, root);
    } else {
      for (int rank = 0; rank < comm.size(); ++rank) {
        if (rank != root) batch.send(at(send, rank * nbytes), nbytes, rank);
      }
      copy_own(recv, at(send, root * nbytes), nbytes);
    }
    batch.wait();
  });
}

void alltoall(Comm& comm, const void* send, void* recv, std::size_t nbytes) {
  const Call call{Collective::kAlltoall, 0, 0, 0, nbytes};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    copy_own(at(recv, comm.rank() * nbytes), at(send, comm.rank() * nbytes), nbytes);
    exchange_with_all(comm, [&](Batch& batch, int to, int from) {
      batch.recv(at(recv, from * nbytes), nbytes, from);
      batch.send(at(send, to * nbytes), nbytes, to);
    });
  });
}

void alltoallv(Comm& comm, const void* send, const std::size_t* send_bytes,
               const std::size_t* send_offsets, void* recv, const std::size_t* recv_bytes,
               const std::size_t* recv_offsets) {
  const Call call{Collective::kAlltoallv, 0, 0, 0, 0};
  comm.run(call, [&] {
    comm.agreement().begin(call);
    const int me = comm.rank();
    if (send_bytes[me] != recv_bytes[me]) {
      fail(DDL_ERROR_MISMATCH, "alltoallv: ", comm.describe(me), " sends ", send_bytes[me],
           " bytes to itself but expects ", recv_bytes[me]);
    }
    copy_own(at(recv, recv_offsets[me]), at(send, send_offsets[me]), send_bytes[me]);
    exchange_with_all(comm, [&](Batch& batch, int to, int from) {
      batch.recv(at(recv, recv_offsets[from]), recv_bytes[from], from);
      batch.send(at(send, send_offsets[to]), send_bytes[to], to);
    });
  });
}

}  // namespace ddl
