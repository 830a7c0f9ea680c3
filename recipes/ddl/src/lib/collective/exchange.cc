// The collectives that move each byte to one rank only: direct messages, which MPI sends through
// shared memory or the network as fits.
#include "collective/exchange.h"

#include "collective/sizes.h"
#include "comm/checks.h"
#include "comm/collective_table.h"
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

void check_gather(const char* function, const Comm& comm, const Arguments& args) {
  check_rooted(function, comm, args.root, {args.send, "send"}, {args.recv, "recv"}, args.count);
}

void gather(Comm& comm, const Arguments& args) {
  const std::size_t nbytes = args.count;
  Batch batch(comm.transport());
  if (comm.rank() != args.root) {
    batch.send(args.send, nbytes, args.root);
  } else {
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (rank != args.root) batch.recv(at(args.recv, rank * nbytes), nbytes, rank);
    }
    // While the messages are under way.
    copy_own(at(args.recv, args.root * nbytes), args.send, nbytes);
  }
  batch.wait();
}

void check_scatter(const char* function, const Comm& comm, const Arguments& args) {
  check_rooted(function, comm, args.root, {args.recv, "recv"}, {args.send, "send"}, args.count);
}

void scatter(Comm& comm, const Arguments& args) {
  const std::size_t nbytes = args.count;
  Batch batch(comm.transport());
  if (comm.rank() != args.root) {
    batch.recv(args.recv, nbytes, args.root);
  } else {
    for (int rank = 0; rank < comm.size(); ++rank) {
      if (rank != args.root) batch.send(at(args.send, rank * nbytes), nbytes, rank);
    }
    copy_own(args.recv, at(args.send, args.root * nbytes), nbytes);
  }
  batch.wait();
}

void check_alltoall(const char* function, const Comm& comm, const Arguments& args) {
  const std::size_t all = multiply(function, args.count, comm.size());
  check_buffer(function, "send", args.send, all);
  check_buffer(function, "recv", args.recv, all);
  check_overlap(function, args.send, all, args.recv, all, false);
}

void alltoall(Comm& comm, const Arguments& args) {
  const std::size_t nbytes = args.count;
  copy_own(at(args.recv, comm.rank() * nbytes), at(args.send, comm.rank() * nbytes), nbytes);
  exchange_with_all(comm, [&](Batch& batch, int to, int from) {
    batch.recv(at(args.recv, from * nbytes), nbytes, from);
    batch.send(at(args.send, to * nbytes), nbytes, to);
  });
}

void check_alltoallv(const char* function, const Comm& comm, const Arguments& args) {
  const BlockLists* lists = args.lists;
  if (lists == nullptr || lists->send_bytes == nullptr || lists->send_offsets == nullptr ||
      lists->recv_bytes == nullptr || lists->recv_offsets == nullptr) {
    fail(DDL_ERROR_ARGUMENT, function, ": a list of counts or offsets is null");
  }
  const std::size_t sent = extent(function, lists->send_bytes, lists->send_offsets, comm.size());
  const std::size_t got = extent(function, lists->recv_bytes, lists->recv_offsets, comm.size());
  check_buffer(function, "send", args.send, sent);
  check_buffer(function, "recv", args.recv, got);
  check_overlap(function, args.send, sent, args.recv, got, false);
}

void alltoallv(Comm& comm, const Arguments& args) {
  const BlockLists& lists = *args.lists;
  const int me = comm.rank();
  agree_on_sizes(comm, lists);
  copy_own(at(args.recv, lists.recv_offsets[me]), at(args.send, lists.send_offsets[me]),
           lists.send_bytes[me]);
  exchange_with_all(comm, [&](Batch& batch, int to, int from) {
    batch.recv(at(args.recv, lists.recv_offsets[from]), lists.recv_bytes[from], from);
    batch.send(at(args.send, lists.send_offsets[to]), lists.send_bytes[to], to);
  });
}

// The common part of these rows. Messages go the same way on one host and between hosts.
constexpr Row direct_row(Collective collective, const char* name,
                         void (*move)(Comm& comm, const Arguments& args)) {
  Row row;
  row.collective = collective;
  row.name = name;
  row.unit = Unit::kBytes;
  row.on_host = move;
  row.between_hosts = move;
  return row;
}

}  // namespace

constexpr Row kGatherRow = [] {
  Row row = direct_row(Collective::kGather, "gather", gather);
  row.has_root = true;
  row.send = {Blocks::kOne, Users::kAll};
  row.recv = {Blocks::kPerRank, Users::kRoot};
  row.check = check_gather;
  return row;
}();

constexpr Row kScatterRow = [] {
  Row row = direct_row(Collective::kScatter, "scatter", scatter);
  row.has_root = true;
  row.send = {Blocks::kPerRank, Users::kRoot};
  row.recv = {Blocks::kOne, Users::kAll};
  row.check = check_scatter;
  return row;
}();

constexpr Row kAlltoallRow = [] {
  Row row = direct_row(Collective::kAlltoall, "alltoall", alltoall);
  row.send = {Blocks::kPerRank, Users::kAll};
  row.recv = {Blocks::kPerRank, Users::kAll};
  row.check = check_alltoall;
  return row;
}();

constexpr Row kAlltoallvRow = [] {
  Row row = direct_row(Collective::kAlltoallv, "alltoallv", alltoallv);
  row.unit = Unit::kNothing;  // ranks may differ
  row.send = {Blocks::kListed, Users::kAll};
  row.recv = {Blocks::kListed, Users::kAll};
  row.check = check_alltoallv;
  return row;
}();

}  // namespace ddl
