// Allreduce: chooses the way.
#include <cstring>
#include <functional>

#include "collective/between_hosts.h"
#include "collective/collectives.h"
#include "collective/on_host.h"
#include "collective/ordered.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

// Reading every input costs each rank work in proportion to the ranks: not for large hosts.
constexpr int kMaxSmallRanks = 16;

// Every rank reads every input: the fewest hand-overs, for messages where these are all that
// counts.
void allreduce_small(Comm& comm, const Call& call, const void* send, void* recv,
                     std::size_t nbytes) {
  HostGroup& host = comm.host();
  const auto type = static_cast<DDL_Type>(call.type);
  const auto op = static_cast<DDL_Op>(call.op);
  const int parity = comm.agreement().parity() ^ 1;  // of the call that announce() begins
  if (nbytes > 0) std::memcpy(host.small(host.rank(), parity, nbytes), send, nbytes);
  comm.agreement().announce(call);
  comm.agreement().agree_on_host();
  const void* inputs[kMaxSmallRanks];
  for (int i = 0; i < host.size(); ++i) inputs[i] = host.small(i, parity, nbytes);
  reduce_function(type, op)(recv, inputs, host.size(), call.count,
                            op == DDL_OP_AVERAGE ? comm.size() : 1.0);
}

}  // namespace

void agreed::allreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                       DDL_Op op) {
  if (comm.num_hosts() > 1 && comm.is_deterministic()) {
    allreduce_ordered(comm, send, recv, count, type, op);
  } else if (comm.num_hosts() > 1) {
    allreduce_between_hosts(comm, send, recv, count, type, op);
  } else {
    allreduce_on_host(comm, send, recv, count, type, op);
  }
}

void allreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
               DDL_Op op) {
  const std::size_t nbytes = count * size_of(type);
  if (nbytes > 0 && is_on_device(recv)) {
    return comm.device().allreduce(send, recv, count, type, op);
  }
  const Call call{Collective::kAllreduce, static_cast<std::uint32_t>(type),
                  static_cast<std::uint32_t>(op), 0, count};
  const auto collective = [&] {
    if (comm.num_hosts() == 1 && nbytes <= HostGroup::kSmallBytes &&
        comm.size() <= kMaxSmallRanks) {
      allreduce_small(comm, call, send, recv, nbytes);
      return;
    }
    comm.agreement().begin(call);
    if (count > 0) agreed::allreduce(comm, send, recv, count, type, op);
  };
  comm.run(call, std::ref(collective));  // a copy would be on the heap
}

}  // namespace ddl
