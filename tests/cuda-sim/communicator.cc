// NCCL's communicators: how they begin and end.
#include "communicator.h"

#include <nccl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>

#include "api.h"
#include "settings.h"
#include "stream.h"

namespace {

using sim::fail;

thread_local std::string last_error;

void end(ncclComm* comm) {
  if (comm->joining.joinable()) comm->joining.join();
  while (comm->under_way > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  delete comm;
}

}  // namespace

namespace sim {

ncclResult_t fail(ncclResult_t code, const std::string& why) {
  last_error = why;
  return code;
}

}  // namespace sim

API ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
API const char* ncclGetErrorString(ncclResult_t code) {
  switch (code) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
API const char* ncclGetLastError(ncclComm_t) { return last_error.c_str(); }

API ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> last{0};
  std::memset(id, 0, sizeof(*id));
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  std::snprintf(id->internal, sizeof(id->internal), "/cudasim-%d-%d-%d-%lld", geteuid(), getpid(),
                ++last, static_cast<long long>(now));
  return ncclSuccess;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t* out, int size, ncclUniqueId id, int rank,
                                        ncclConfig_t* config) {
  if (rank < 0 || rank >= size) return fail(ncclInvalidArgument, "there is no such rank");
  if (cudasim_broken() != cudaSuccess) return fail(ncclUnhandledCudaError, "a GPU is lost");
  auto* comm = new ncclComm;
  *out = comm;
  const auto device = static_cast<std::size_t>(cudasim_current_device());
  comm->group =
      std::make_unique<sim::Group>(id.internal, size, rank, sim::settings().visible[device]);
  comm->joining = std::thread([comm] {
    if (!comm->group->join()) return;
    if (comm->group->is_gpu_shared()) comm->group->set_state(ncclInvalidUsage);
    comm->is_ready = true;
  });
  if (config != nullptr && config->blocking == 0) return ncclInProgress;
  comm->joining.join();
  return comm->group->state();
}

API ncclResult_t ncclCommInitRank(ncclComm_t* out, int size, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(out, size, id, rank, nullptr);
}
API ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->group->state();
  if (*state == ncclSuccess && !comm->is_ready) *state = ncclInProgress;
  if (*state == ncclSuccess && cudasim_broken() != cudaSuccess) *state = ncclUnhandledCudaError;
  return ncclSuccess;
}
API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  end(comm);
  return ncclSuccess;
}
API ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->group->stop();
  end(comm);
  return ncclSuccess;
}

API ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  *count = comm->group->size();
  return ncclSuccess;
}
API ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  *rank = comm->group->rank();
  return ncclSuccess;
}
// Ends the work under way. Unlike NCCL's, it does not return before.
API ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  while (comm->under_way > 0) std::this_thread::sleep_for(std::chrono::microseconds(50));
  return ncclSuccess;
}
