// Reduce-scatter. On one host, every rank puts a piece of each block per chunk into shared memory,
// and sums the pieces of its own.
#include <algorithm>
#include <vector>

#include "collective/between_hosts.h"
#include "collective/ordered.h"
#include "comm/checks.h"
#include "comm/collective_table.h"
#include "comm/device_interface.h"
#include "reduce/kernels.h"
#include "schedule/spread.h"

namespace ddl {
namespace {

void check_reduce_scatter(const char* function, const Comm& comm, const Arguments& args) {
  check_reduction(function, args);
  const std::size_t nbytes = multiply(function, args.count, size_of(args.type));
  check_blocks(function, comm, {args.recv, "recv"}, {args.send, "send"}, nbytes);
}

void reduce_scatter_on_host(Comm& comm, const Arguments& args) {
  const auto* send = static_cast<const std::byte*>(args.send);
  auto* recv = static_cast<std::byte*>(args.recv);
  const std::size_t count = args.count;
  HostGroup& host = comm.host();
  const std::size_t width = size_of(args.type);
  const std::size_t piece = host.chunk_bytes() / width / comm.size();
  const int me = comm.rank();
  std::vector<const void*> inputs(comm.size());
  std::size_t slot = host.take_slots((count + piece - 1) / piece);
  for (std::size_t begin = 0; begin < count; begin += piece, ++slot) {
    const std::size_t n = std::min(piece, count - begin);
    // All ranks have read this area's inputs, since they arrived at the last chunk afterwards.
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
    reduce_function(args.type, args.op)(recv + begin * width, inputs.data(), comm.size(), n,
                                        args.op == DDL_OP_AVERAGE ? comm.size() : 1.0);
  }
}

void reduce_scatter_on_many_hosts(Comm& comm, const Arguments& args) {
  (comm.is_deterministic() ? reduce_scatter_ordered : reduce_scatter_between_hosts)(comm, args);
}

}  // namespace

constexpr Row kReduceScatterRow = [] {
  Row row;
  row.collective = Collective::kReduceScatter;
  row.name = "reduce_scatter";
  row.async_name = "ireduce_scatter";
  row.unit = Unit::kElements;
  row.send = {Blocks::kPerRank, Users::kAll};
  row.recv = {Blocks::kOne, Users::kAll};
  row.check = check_reduce_scatter;
  row.on_host = reduce_scatter_on_host;
  row.between_hosts = reduce_scatter_on_many_hosts;
  row.on_device = &DeviceGroup::reduce_scatter;
  row.plan = [](const PlanInput& input) {
    return plan_reduce_scatter(input.tree, input.host, blocks_by_host(input), kPlanUnit);
  };
  return row;
}();

}  // namespace ddl
