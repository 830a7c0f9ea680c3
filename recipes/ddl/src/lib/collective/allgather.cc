// All-gather. On one host, every rank puts a piece of its block per chunk into shared memory.
#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/piggybacked.h"
#include "comm/checks.h"
#include "comm/collective_table.h"
#include "comm/device_interface.h"
#include "reduce/kernels.h"
#include "schedule/spread.h"

namespace ddl {
namespace {

void check_allgather(const char* function, const Comm& comm, const Arguments& args) {
  check_blocks(function, comm, {args.send, "send"}, {args.recv, "recv"}, args.count);
}

void allgather_on_host(Comm& comm, const Arguments& args) {
  const auto* send = static_cast<const std::byte*>(args.send);
  auto* recv = static_cast<std::byte*>(args.recv);
  const std::size_t nbytes = args.count;
  HostGroup& host = comm.host();
  const std::size_t piece = host.chunk_bytes();
  std::size_t slot = host.take_slots((nbytes + piece - 1) / piece);
  for (std::size_t begin = 0; begin < nbytes; begin += piece, ++slot) {
    const std::size_t n = std::min(piece, nbytes - begin);
    // All ranks have read this area, since they arrived at the last chunk afterwards.
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

constexpr Row kAllgatherRow = [] {
  Row row;
  row.collective = Collective::kAllgather;
  row.name = "allgather";
  row.async_name = "iallgather";
  row.unit = Unit::kBytes;
  row.send = {Blocks::kOne, Users::kAll};
  row.recv = {Blocks::kPerRank, Users::kAll};
  row.check = check_allgather;
  row.on_host = allgather_on_host;
  row.between_hosts = allgather_between_hosts;
  row.at_once = allgather_piggybacked;
  row.on_device = &DeviceGroup::allgather;
  row.plan = [](const PlanInput& input) {
    return plan_allgather(input.tree, input.host, blocks_by_host(input), kPlanUnit);
  };
  return row;
}();

}  // namespace ddl
