// Allreduce: chooses the way.
#include <cstring>

#include "collective/between_hosts.h"
#include "collective/on_host.h"
#include "collective/ordered.h"
#include "collective/piggybacked.h"
#include "comm/checks.h"
#include "comm/collective_table.h"
#include "comm/device_interface.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

void check_allreduce(const char* function, const Comm&, const Arguments& args) {
  check_reduction(function, args);
  check_pair(function, args, multiply(function, args.count, size_of(args.type)));
}

// Reading every input costs each rank work in proportion to the ranks: not for large hosts.
constexpr int kMaxSmallRanks = 16;

// Every rank reads every input, beside the calls that it compares: the fewest hand-overs, for
// messages where these are all that counts.
bool allreduce_at_once(Comm& comm, const Call& call, const Arguments& args) {
  const std::size_t nbytes = args.nbytes();
  const bool is_small = nbytes <= HostGroup::kSmallBytes && comm.size() <= kMaxSmallRanks;
  if (comm.num_hosts() > 1) return allreduce_piggybacked(comm, call, args).has_value();
  if (!is_small) return false;
  HostGroup& host = comm.host();
  Agreement& agreement = comm.agreement();
  const int parity = agreement.parity() ^ 1;  // of the call that announce() begins
  if (nbytes > 0) std::memcpy(host.small(host.rank(), parity, nbytes), args.send, nbytes);
  agreement.announce(call);
  agreement.agree_on_host();
  const void* inputs[kMaxSmallRanks];
  for (int i = 0; i < host.size(); ++i) inputs[i] = host.small(i, parity, nbytes);
  reduce_function(args.type, args.op)(args.recv, inputs, host.size(), args.count,
                                      args.op == DDL_OP_AVERAGE ? comm.size() : 1.0);
  return true;
}

void allreduce_on_many_hosts(Comm& comm, const Arguments& args) {
  (comm.is_deterministic() ? allreduce_ordered : allreduce_between_hosts)(comm, args);
}

}  // namespace

constexpr Row kAllreduceRow = [] {
  Row row;
  row.collective = Collective::kAllreduce;
  row.name = "allreduce";
  row.async_name = "iallreduce";
  row.unit = Unit::kElements;
  row.can_fuse = true;
  row.send = {Blocks::kOne, Users::kAll};
  row.recv = {Blocks::kOne, Users::kAll};
  row.check = check_allreduce;
  row.on_host = allreduce_on_host;
  row.between_hosts = allreduce_on_many_hosts;
  row.on_device = &DeviceGroup::allreduce;
  row.plan = [](const PlanInput& input) {
    return plan_allreduce(input.tree, input.host, input.count, kPlanUnit);
  };
  row.at_once = allreduce_at_once;
  return row;
}();

}  // namespace ddl
