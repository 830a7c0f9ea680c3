#include "device/nccl.h"

#include <cstdint>
#include <system_error>
#include <thread>
#include <utility>

#include "base/error.h"
#include "device/cuda.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

ncclDataType_t data_type(DDL_Type type) {
  switch (type) {
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl) \
  case type:                                                \
    return nccl;
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
  }
  fail(DDL_ERROR_ARGUMENT, "unknown element type ", static_cast<int>(type));
}

// Room for a value of any type.
union Scalar {
  std::uint16_t bits;
  float single;
  double full;
};

Scalar one_of(DDL_Type type) {
  Scalar one{};
  if (type == DDL_TYPE_HALF) one.bits = 0x3c00;
  if (type == DDL_TYPE_BFLOAT16) one.bits = 0x3f80;
  if (type == DDL_TYPE_FLOAT) one.single = 1;
  if (type == DDL_TYPE_DOUBLE) one.full = 1;
  return one;
}

bool is_pending(ncclResult_t code) { return code == ncclInProgress; }

}  // namespace

NcclGroup::NcclGroup(const ncclUniqueId& id, int size, int rank, Wait wait)
    : size_(size), rank_(rank), wait_(std::move(wait)) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  try {
    settle(ncclCommInitRankConfig(&comm_, size, id, rank, &config), "ncclCommInitRank");
  } catch (...) {
    abort();
    throw;
  }
}

// Local: the others need not come. When the process exits without ddl_finalize, CUDA may be gone.
NcclGroup::~NcclGroup() {
  int device = 0;
  if (comm_ == nullptr || cudaGetDevice(&device) != cudaSuccess) return;
  end(ncclCommDestroy);
}

// NCCL waits until the last graph with its operations is destroyed, and the program may keep one.
void NcclGroup::end(ncclResult_t (*how)(ncclComm_t)) {
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  if (!is_in_graphs_) {
    how(comm);
    return;
  }
  try {
    std::thread([=] { how(comm); }).detach();
  } catch (const std::system_error&) {  // no thread is left: it stays until the process ends
  }
}

ncclUniqueId NcclGroup::new_id() {
  ncclUniqueId id;
  const ncclResult_t code = ncclGetUniqueId(&id);
  if (code != ncclSuccess) {
    fail(DDL_ERROR_DEVICE, "ncclGetUniqueId failed: ", ncclGetErrorString(code));
  }
  return id;
}

void NcclGroup::abort() {
  if (comm_ != nullptr) end(ncclCommAbort);
}

void NcclGroup::check(ncclResult_t code, const char* what) const {
  if (code == ncclSuccess || is_pending(code)) return;
  // CUDA has better words for its own errors; one that lasts comes again.
  if (code == ncclUnhandledCudaError) {
    const cudaError_t cause = cudaStreamQuery(nullptr);
    if (cause != cudaErrorNotReady) check_cuda(cause, what);
  }
  // NCCL calls a peer's end a remote error.
  fail(code == ncclRemoteError ? DDL_ERROR_PEER_LOST : DDL_ERROR_DEVICE, what,
       " failed: ", ncclGetErrorString(code), " (", ncclGetLastError(comm_),
       "); NCCL_DEBUG=WARN tells more");
}

void NcclGroup::settle(ncclResult_t code, const char* what) const {
  check(code, what);
  if (!is_pending(code)) return;
  wait_([&] {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
    check(state, what);
    return !is_pending(state);
  });
}

void NcclGroup::check_health() const {
  ncclResult_t state = ncclSuccess;
  check(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
  check(state, "NCCL");
}

ncclRedOp_t NcclGroup::operation(DDL_Type type, DDL_Op op, int all_ranks) {
  switch (op) {
    case DDL_OP_SUM:
      return ncclSum;
    case DDL_OP_PRODUCT:
      return ncclProd;
    case DDL_OP_MIN:
      return ncclMin;
    case DDL_OP_MAX:
      return ncclMax;
    case DDL_OP_AVERAGE:
      break;
  }
  const auto [entry, is_new] = averages_.try_emplace(type, ncclSum);
  if (is_new) {
    // 1 / ranks in the elements' own format, by the kernels that divide host buffers.
    Scalar factor = one_of(type);
    const void* input = &factor;
    reduce_function(type, DDL_OP_SUM)(&factor, &input, 1, 1, all_ranks);
    settle(ncclRedOpCreatePreMulSum(&entry->second, &factor, data_type(type),
                                    ncclScalarHostImmediate, comm_),
           "ncclRedOpCreatePreMulSum");
  }
  return entry->second;
}

void NcclGroup::allreduce(const Arguments& args, int all_ranks, cudaStream_t stream) {
  settle(ncclAllReduce(args.send, args.recv, args.count, data_type(args.type),
                       operation(args.type, args.op, all_ranks), comm_, stream),
         "ncclAllReduce");
}

void NcclGroup::reduce(const Arguments& args, int all_ranks, cudaStream_t stream) {
  settle(ncclReduce(args.send, args.recv, args.count, data_type(args.type),
                    operation(args.type, args.op, all_ranks), args.root, comm_, stream),
         "ncclReduce");
}

void NcclGroup::reduce_scatter(const Arguments& args, int all_ranks, cudaStream_t stream) {
  settle(ncclReduceScatter(args.send, args.recv, args.count, data_type(args.type),
                           operation(args.type, args.op, all_ranks), comm_, stream),
         "ncclReduceScatter");
}

void NcclGroup::allgather(const Arguments& args, cudaStream_t stream) {
  settle(ncclAllGather(args.send, args.recv, args.count, ncclUint8, comm_, stream),
         "ncclAllGather");
}

void NcclGroup::broadcast(const Arguments& args, cudaStream_t stream) {
  settle(ncclBroadcast(args.send, args.recv, args.count, ncclUint8, args.root, comm_, stream),
         "ncclBroadcast");
}

void NcclGroup::reduce_slices(std::byte* data, int lanes, std::size_t count, const Arguments& like,
                              int all_ranks, cudaStream_t stream) {
  const std::size_t nbytes = count * size_of(like.type);
  if (lanes == size_) {
    return reduce_scatter({data, data + rank_ * nbytes, count, like.type, like.op}, all_ranks,
                          stream);
  }
  const ncclRedOp_t how = operation(like.type, like.op, all_ranks);
  check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t code = ncclSuccess;
  for (int lane = 0; lane < lanes && (code == ncclSuccess || is_pending(code)); ++lane) {
    std::byte* slice = data + lane * nbytes;
    code = ncclReduce(slice, slice, count, data_type(like.type), how, lane, comm_, stream);
  }
  const ncclResult_t end = ncclGroupEnd();  // whatever came before, a group has an end
  check(code, "ncclReduce");
  settle(end, "ncclReduce");
}

void NcclGroup::gather_slices(std::byte* data, int lanes, std::size_t nbytes, cudaStream_t stream) {
  if (lanes == size_) {
    return allgather(bytes_to_move(data + rank_ * nbytes, data, nbytes), stream);
  }
  check(ncclGroupStart(), "ncclGroupStart");
  ncclResult_t code = ncclSuccess;
  for (int lane = 0; lane < lanes && (code == ncclSuccess || is_pending(code)); ++lane) {
    std::byte* slice = data + lane * nbytes;
    code = ncclBroadcast(slice, slice, nbytes, ncclUint8, lane, comm_, stream);
  }
  const ncclResult_t end = ncclGroupEnd();
  check(code, "ncclBroadcast");
  settle(end, "ncclBroadcast");
}

}  // namespace ddl
