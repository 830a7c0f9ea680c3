// Broadcast. On one host, the root writes a chunk to shared memory while the others read the one
// before.
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

void check_broadcast(const char* function, const Comm& comm, const Arguments& args) {
  check_rank(function, "root", args.root, comm);
  check_buffer(function, "buffer", args.recv, args.count);
}

void broadcast_on_host(Comm& comm, const Arguments& args) {
  const std::size_t nbytes = args.count;
  HostGroup& host = comm.host();
  const bool is_root = comm.rank() == args.root;
  const int writer = comm.topology().local_rank(args.root);
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
      if (c >= slots) host.wait_all_done(done + c + 1 - slots);  // all have read the slot
      copy_bytes(shared, static_cast<const std::byte*>(args.send) + begin, n);
      host.post_arrived();
    } else {
      host.post_arrived();  // keeps the counters of all ranks equal
      host.wait_arrived(writer, arrived + c + 1);
      copy_bytes(static_cast<std::byte*>(args.recv) + begin, shared, n);
    }
    host.post_done();
  }
}

}  // namespace

constexpr Row kBroadcastRow = [] {
  Row row;
  row.collective = Collective::kBroadcast;
  row.name = "broadcast";
  row.async_name = "ibroadcast";
  row.unit = Unit::kBytes;
  row.has_root = true;
  row.send = {Blocks::kOne, Users::kRoot};
  row.recv = {Blocks::kOne, Users::kAllButRoot};
  row.check = check_broadcast;
  row.on_host = broadcast_on_host;
  row.between_hosts = broadcast_between_hosts;
  row.at_once = broadcast_piggybacked;
  row.on_device = &DeviceGroup::broadcast;
  row.plan = [](const PlanInput& input) {
    return plan_broadcast(input.tree, input.host, input.root, input.count, kPlanUnit);
  };
  return row;
}();

}  // namespace ddl
