// NCCL: its collectives are operations of streams, between processes of one host.
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "api.h"
#include "communicator.h"
#include "group.h"
#include "reduce.h"
#include "settings.h"
#include "stream.h"

namespace {

using sim::fail;
using Ranges = std::vector<sim::Range>;

struct Collective {
  sim::Call call;
  ncclComm* comm;
  cudaStream_t stream;
  Ranges ranges;
  std::function<bool(sim::Group&)> body;  // false: stopped; null: a transfer
  sim::Transfer transfer = {};
};

thread_local int depth = 0;
thread_local std::vector<Collective> grouped;

// The fault that was asked for, at this process's collective of that number.
bool is_struck(const char* kind) {
  static std::atomic<std::uint64_t> begun{0};
  const sim::Fault& fault = sim::settings().fault;
  return fault.kind == kind && ++begun == fault.at;
}

void run(const Collective& one) {
  sim::Group& group = *one.comm->group;
  const auto until_stopped = [&] {
    while (!group.is_stopped()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  };
  if (is_struck("nccl-hang")) until_stopped();
  if (is_struck("nccl-error")) {
    group.set_state(ncclSystemError);
    until_stopped();
  }
  if (group.agree(one.call)) one.body(group);
}

// Those of a group that are between two ranks, at once: each may need another to go on.
void run_transfers(const std::vector<Collective>& all) {
  std::map<ncclComm*, std::vector<sim::Transfer>> transfers;
  for (const Collective& one : all) {
    if (!one.body) transfers[one.comm].push_back(one.transfer);
  }
  for (const auto& [comm, mine] : transfers) comm->group->exchange(mine);
}

ncclResult_t give(std::vector<Collective> all) {
  for (Collective& one : all) {
    if (!one.comm->is_ready) return fail(ncclInvalidUsage, "the communicator is not ready");
  }
  // The operations of a group are one of the stream's: their ranges are used together.
  while (!all.empty()) {
    const cudaStream_t stream = all.front().stream;
    auto others = std::stable_partition(
        all.begin(), all.end(), [&](const Collective& one) { return one.stream == stream; });
    std::vector<Collective> mine(std::make_move_iterator(all.begin()),
                                 std::make_move_iterator(others));
    all.erase(all.begin(), others);
    Ranges ranges;
    std::vector<ncclComm*> comms;
    for (const Collective& one : mine) {
      ranges.insert(ranges.end(), one.ranges.begin(), one.ranges.end());
      comms.push_back(one.comm);
      ++one.comm->under_way;
    }
    // A stream of a GPU that is lost forgets its operations without running them.
    const std::shared_ptr<void> end_of_all(nullptr, [comms](void*) {
      for (ncclComm* comm : comms) --comm->under_way;
    });
    const std::string what = std::string("nccl") + mine.front().call.name;
    const cudaError_t code = cudasim_give(stream, what, ranges, [mine, end_of_all] {
      run_transfers(mine);
      for (const Collective& one : mine) {
        if (one.body) run(one);
      }
    });
    if (code != cudaSuccess) return fail(ncclUnhandledCudaError, cudaGetErrorString(code));
  }
  return ncclSuccess;
}

ncclResult_t give(Collective one) {
  if (sim::Group* group = one.comm->group.get(); group->state() != ncclSuccess) {
    return fail(group->state(), "a rank is lost");
  }
  for (const sim::Range& range : one.ranges) {
    int device = 0;
    if (range.nbytes > 0 && cudasim_kind(range.begin, &device) == 0) {
      return fail(ncclInvalidArgument, "a buffer is not in the memory of a GPU");
    }
  }
  if (one.body) one.call.number = ++one.comm->calls;
  if (depth > 0) {
    grouped.push_back(std::move(one));
    return ncclSuccess;
  }
  std::vector<Collective> all;
  all.push_back(std::move(one));
  return give(std::move(all));
}

sim::Call describe(const char* name, std::size_t count, ncclDataType_t type, int op, int root) {
  sim::Call call{0, "", count, static_cast<int>(type), op, root};
  std::snprintf(call.name, sizeof(call.name), "%s", name);
  return call;
}

sim::Reduction reduction(const ncclComm& comm, ncclRedOp_t op) {
  const int own = static_cast<int>(op) - static_cast<int>(ncclNumOps);
  if (own < 0) return {op, nullptr, comm.group->size()};
  return {ncclSum, comm.factors[static_cast<std::size_t>(own)].data(), comm.group->size()};
}

// Every rank has `count` elements; `owner` has the sum in `out`, or all have: -1.
bool reduce_to(sim::Group& group, const std::byte* in, std::byte* out, std::size_t count,
               ncclDataType_t type, const sim::Reduction& how, int owner) {
  const std::size_t width = sim::size_of(type);
  const std::size_t most = sim::Group::kSlotBytes / width;
  for (std::size_t begin = 0; begin < count; begin += most) {
    const std::size_t n = std::min(most, count - begin);
    std::memcpy(group.slot(group.rank()), in + begin * width, n * width);
    if (!group.barrier()) return false;
    if (owner < 0 || owner == group.rank()) {
      sim::reduce(
          type, how, n, [&](int rank) { return group.slot(rank); }, out + begin * width);
    }
    if (!group.barrier()) return false;
  }
  return true;
}

bool broadcast_from(sim::Group& group, const std::byte* in, std::byte* out, std::size_t nbytes,
                    int root) {
  for (std::size_t begin = 0; begin < nbytes; begin += sim::Group::kSlotBytes) {
    const std::size_t n = std::min(sim::Group::kSlotBytes, nbytes - begin);
    if (group.rank() == root) std::memcpy(group.slot(root), in + begin, n);
    if (!group.barrier()) return false;
    if (out != in) std::memcpy(out + begin, group.slot(root), n);
    if (!group.barrier()) return false;
  }
  return true;
}

ncclResult_t check_root(const ncclComm& comm, int root) {
  if (root >= 0 && root < comm.group->size()) return ncclSuccess;
  return fail(ncclInvalidArgument, "the root is no rank of the communicator");
}

}  // namespace

API ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* factor, ncclDataType_t type,
                                          ncclScalarResidence_t residence, ncclComm_t comm) {
  if (residence != ncclScalarHostImmediate) {
    return fail(ncclInvalidArgument, "only factors in host memory are simulated");
  }
  const auto* bytes = static_cast<const std::byte*>(factor);
  comm->factors.emplace_back(bytes, bytes + sim::size_of(type));
  *op = static_cast<ncclRedOp_t>(static_cast<int>(ncclNumOps) +
                                 static_cast<int>(comm->factors.size()) - 1);
  return ncclSuccess;
}
// The numbers of the others stay as they are, so the factor stays too.
API ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

API ncclResult_t ncclAllReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const std::size_t nbytes = count * sim::size_of(type);
  const sim::Reduction how = reduction(*comm, op);
  const std::byte* in = cudasim_alias(send);
  std::byte* out = cudasim_alias(recv);
  return give({describe("AllReduce", count, type, op, 0), comm, stream,
               Ranges{{send, nbytes, false}, {recv, nbytes, true}},
               [=](sim::Group& group) { return reduce_to(group, in, out, count, type, how, -1); }});
}

API ncclResult_t ncclReduce(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                            ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t code = check_root(*comm, root); code != ncclSuccess) return code;
  const std::size_t nbytes = count * sim::size_of(type);
  const sim::Reduction how = reduction(*comm, op);
  const std::byte* in = cudasim_alias(send);
  std::byte* out = cudasim_alias(recv);
  Ranges ranges{{send, nbytes, false}};
  if (root == comm->group->rank()) ranges.push_back({recv, nbytes, true});
  return give(
      {describe("Reduce", count, type, op, root), comm, stream, ranges,
       [=](sim::Group& group) { return reduce_to(group, in, out, count, type, how, root); }});
}

API ncclResult_t ncclReduceScatter(const void* send, void* recv, std::size_t count,
                                   ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                                   cudaStream_t stream) {
  const std::size_t nbytes = count * sim::size_of(type);
  const auto size = static_cast<std::size_t>(comm->group->size());
  const sim::Reduction how = reduction(*comm, op);
  const std::byte* in = cudasim_alias(send);
  std::byte* out = cudasim_alias(recv);
  return give({describe("ReduceScatter", count, type, op, 0), comm, stream,
               Ranges{{send, nbytes * size, false}, {recv, nbytes, true}}, [=](sim::Group& group) {
                 for (std::size_t block = 0; block < size; ++block) {
                   if (!reduce_to(group, in + block * nbytes, out, count, type, how,
                                  static_cast<int>(block))) {
                     return false;
                   }
                 }
                 return true;
               }});
}

API ncclResult_t ncclAllGather(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::size_t nbytes = count * sim::size_of(type);
  const auto size = static_cast<std::size_t>(comm->group->size());
  const std::byte* in = cudasim_alias(send);
  std::byte* out = cudasim_alias(recv);
  return give(
      {describe("AllGather", count, type, 0, 0), comm, stream,
       Ranges{{send, nbytes, false}, {recv, nbytes * size, true}}, [=](sim::Group& group) {
         for (std::size_t block = 0; block < size; ++block) {
           if (!broadcast_from(group, in, out + block * nbytes, nbytes, static_cast<int>(block))) {
             return false;
           }
         }
         return true;
       }});
}

API ncclResult_t ncclBroadcast(const void* send, void* recv, std::size_t count, ncclDataType_t type,
                               int root, ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t code = check_root(*comm, root); code != ncclSuccess) return code;
  const std::size_t nbytes = count * sim::size_of(type);
  std::byte* out = cudasim_alias(recv);
  // In place, the root's data stay as they are; elsewhere, `send` says nothing.
  const bool is_root = root == comm->group->rank();
  Ranges ranges;
  if (is_root) ranges.push_back({send, nbytes, false});
  if (!is_root || send != recv) ranges.push_back({recv, nbytes, true});
  const std::byte* in = is_root ? cudasim_alias(send) : nullptr;
  return give({describe("Broadcast", count, type, 0, root), comm, stream, ranges,
               [=](sim::Group& group) { return broadcast_from(group, in, out, nbytes, root); }});
}

API ncclResult_t ncclBcast(void* data, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return ncclBroadcast(data, data, count, type, root, comm, stream);
}

API ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer,
                          ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t code = check_root(*comm, peer); code != ncclSuccess) return code;
  const std::size_t nbytes = count * sim::size_of(type);
  return give({describe("Send", count, type, 0, peer), comm, stream, Ranges{{send, nbytes, false}},
               nullptr, sim::Transfer{true, peer, cudasim_alias(send), nbytes}});
}
API ncclResult_t ncclRecv(void* recv, std::size_t count, ncclDataType_t type, int peer,
                          ncclComm_t comm, cudaStream_t stream) {
  if (const ncclResult_t code = check_root(*comm, peer); code != ncclSuccess) return code;
  const std::size_t nbytes = count * sim::size_of(type);
  return give({describe("Recv", count, type, 0, peer), comm, stream, Ranges{{recv, nbytes, true}},
               nullptr, sim::Transfer{false, peer, cudasim_alias(recv), nbytes}});
}

API ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
API ncclResult_t ncclGroupEnd() {
  if (depth == 0) return fail(ncclInvalidUsage, "a group ends that has not begun");
  if (--depth > 0) return ncclSuccess;
  return give(std::exchange(grouped, {}));
}
