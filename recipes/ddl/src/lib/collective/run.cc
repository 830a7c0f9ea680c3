#include "collective/run.h"

#include <functional>

#include "collective/host_copy.h"
#include "comm/checks.h"
#include "comm/comm.h"

namespace ddl {
namespace {

bool is_all_on_device(const Row& row, const Arguments& args) {
  return row.on_device != nullptr && args.count > 0 && is_on_device(args.send);
}

bool has_data(const Row& row, const Arguments& args) {
  return row.on_host != nullptr && (args.count > 0 || row.unit == Unit::kNothing);
}

void run_in_host_memory(Comm& comm, const Row& row, const Arguments& args) {
  const Call call = call_of(row, args);
  const auto collective = [&] {
    if (row.at_once != nullptr && row.at_once(comm, call, args)) return;
    comm.agreement().begin(call);
    if (has_data(row, args)) move_data(comm, row, args);
  };
  comm.run(call, std::ref(collective));  // a copy would be on the heap
}

// Runs a collective whose buffers may be on a GPU on some ranks only.
void run_on_copies(Comm& comm, const Row& row, const Arguments& args) {
  const BlockLists* lists = args.lists;
  const int n = comm.size();
  const std::size_t block = args.count * row.width(args.type);
  const std::size_t sent = lists ? extent(row.name, lists->send_bytes, lists->send_offsets, n)
                                 : block * blocks_here(comm, row.send, args.root);
  const std::size_t got = lists ? extent(row.name, lists->recv_bytes, lists->recv_offsets, n)
                                : block * blocks_here(comm, row.recv, args.root);
  const HostInput input(comm, args.send, sent);
  HostOutput output(comm, args.recv, got);
  Arguments in_host_memory = args;
  in_host_memory.send = input.data();
  in_host_memory.recv = output.data();
  run_in_host_memory(comm, row, in_host_memory);
  if (lists == nullptr) return output.deliver(0, got);
  for (int rank = 0; rank < n; ++rank) {
    output.deliver(lists->recv_offsets[rank], lists->recv_bytes[rank]);
  }
}

}  // namespace

std::size_t blocks_here(const Comm& comm, const Side& side, int root) {
  if (side.users != Users::kAll && (comm.rank() == root) != (side.users == Users::kRoot)) return 0;
  return side.blocks == Blocks::kPerRank ? comm.size() : side.blocks == Blocks::kOne ? 1 : 0;
}

Call call_of(const Row& row, const Arguments& args) {
  Call call;
  call.collective = row.collective;
  if (row.unit == Unit::kElements) {
    call.type = static_cast<std::uint32_t>(args.type);
    call.op = static_cast<std::uint32_t>(args.op);
  }
  if (row.has_root) call.root = args.root;
  if (row.unit != Unit::kNothing) call.count = args.count;
  return call;
}

void move_data(Comm& comm, const Row& row, const Arguments& args) {
  (comm.num_hosts() > 1 ? row.between_hosts : row.on_host)(comm, args);
}

void run(Comm& comm, const Row& row, const Arguments& args) {
  if (is_all_on_device(row, args)) return comm.device().run(row, args);
  if (row.on_device != nullptr) return run_in_host_memory(comm, row, args);
  run_on_copies(comm, row, args);
}

std::shared_ptr<Request> start(Comm& comm, const Row& row, const Arguments& args) {
  if (row.can_fuse && !is_all_on_device(row, args)) return comm.queue().submit(args);
  return comm.queue().submit([&comm, &row, args, stream = t_stream] {
    const StreamScope scope(stream);  // in order with the stream of the thread that asked
    comm.or_give_up([&] { run(comm, row, args); });  // more is queued behind it
  });
}

}  // namespace ddl
