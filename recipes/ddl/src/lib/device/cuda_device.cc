// Collectives on GPUs. On one host they are NCCL's. Between hosts, an allreduce sums inside every
// host by NCCL, so that each rank has a slice, and the k-th ranks of all hosts sum slice k as ranks
// that are alone on their hosts, from pinned host memory. Everything else goes through host memory
// as a whole, as does all of it when NCCL cannot be used.
#include "device/cuda_device.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "collective/run.h"

namespace ddl {
namespace {

// A GPU's name on its host.
struct BusId {
  char text[32];
  bool operator==(const BusId& other) const { return std::strcmp(text, other.text) == 0; }
};
static_assert(sizeof(BusId) <= HostGroup::kSmallBytes);

BusId bus_id(int device) {
  BusId id{};
  check_cuda(cudaDeviceGetPCIBusId(id.text, sizeof(id.text), device), "cudaDeviceGetPCIBusId");
  return id;
}

// Copies after the work in the thread's stream, in a stream of its own: sends and receives of other
// threads must not wait for a collective.
void copy_now(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
              const char* what) {
  Event ready;
  const Stream stream;
  ready.record(static_cast<cudaStream_t>(t_stream));
  ready.block(stream);
  check_cuda(cudaMemcpyAsync(to, from, nbytes, kind, stream), what);
  check_cuda(cudaStreamSynchronize(stream), what);
}

}  // namespace

std::unique_ptr<Device> make_device(Comm& comm) { return std::make_unique<CudaDevice>(comm); }

CudaDevice::~CudaDevice() {
  if (!gpu_) return;
  try {
    const CurrentDevice current(device_);
    gpu_.reset();
  } catch (const Error&) {
    // The process exits without ddl_finalize, and CUDA is gone, with its handles.
    static_cast<void>(gpu_.release());
  }
}

// The first call chooses the communicator's GPU.
int CudaDevice::check_device(const Call& call, const void* buffer) {
  const int device = device_of(buffer);
  int first = -1;
  if (!device_.compare_exchange_strong(first, device) && first != device) {
    fail(DDL_ERROR_ARGUMENT, describe(call), ": a buffer is on GPU ", device,
         ", but this communicator's first was on GPU ", first,
         "; make another communicator for the other GPU");
  }
  return device;
}

int CudaDevice::find_device(const Row& row, const Call& call, const Arguments& args) {
  const int device = check_device(call, args.send);
  if (blocks_here(comm_, row.recv, args.root) > 0) check_device(call, args.recv);
  return device;
}

void CudaDevice::run_on(int device, const Call& call, const std::function<void(Gpu&)>& body) {
  void* const stream = t_stream;  // the call may have to wait its turn on another thread
  comm_.run(call, [&] {
    const CurrentDevice current(device);
    // Read by the host's ranks in set_up(); the next call but one writes there again.
    HostGroup& host = comm_.host();
    std::memcpy(host.small(host.rank(), comm_.agreement().parity() ^ 1, sizeof(BusId)),
                bus_id(device).text, sizeof(BusId));
    meet(call);
    if (!gpu_) set_up();
    Gpu& gpu = *gpu_;
    try {
      if (comm_.settings().device_sync > 0) check_cuda(cudaDeviceSynchronize(), "the GPU's work");
      gpu.ready.record(static_cast<cudaStream_t>(stream));
      gpu.ready.block(gpu.stream);
      body(gpu);
      gpu.finished.record(gpu.stream);
      wait(gpu.finished);
    } catch (...) {
      stop(gpu);
      throw;
    }
  });
}

// A graph that the program has launched may wait for the rank that is lost.
void CudaDevice::meet(const Call& call) {
  try {
    comm_.agreement().begin(call);
  } catch (const Disagreement&) {
    throw;
  } catch (...) {
    if (gpu_ && gpu_->nccl && gpu_->nccl->is_in_graphs()) stop(*gpu_);
    throw;
  }
}

// Collective over the communicator: whether NCCL is used must be the same everywhere.
void CudaDevice::set_up() {
  auto gpu = std::make_unique<Gpu>();
  const bool is_on_many = comm_.num_hosts() > 1;
  long can_use_nccl = comm_.is_deterministic() || is_gpu_shared() ? 0 : 1;
  Batch batch(comm_.transport());
  batch.all_min(&can_use_nccl, 1);
  batch.wait();
  if (can_use_nccl == 1) {
    const ncclUniqueId id = share_nccl_id();
    gpu->nccl.emplace(id, comm_.host().size(), comm_.host().rank(),
                      [this](const std::function<bool()>& is_done) { wait(is_done); });
    const int lane = comm_.host().rank();
    if (is_on_many && lane < comm_.num_lanes()) {
      std::vector<int> ranks;
      for (const Host& host : comm_.topology().hosts()) ranks.push_back(host.ranks[lane]);
      gpu->lane = comm_.subset(ranks, tags::kLaneGroups.first);
    }
  }
  if (comm_.settings().debug_level >= 1) {
    std::fprintf(stderr, "[ddl] %s: GPU %d (%s): collectives go %s\n",
                 comm_.describe(comm_.rank()).c_str(), device_.load(), bus_id(device_).text,
                 !gpu->nccl   ? "through host memory"
                 : gpu->lane  ? "through NCCL and between hosts"
                 : is_on_many ? "through NCCL, to a rank that goes between hosts"
                              : "through NCCL");
  }
  way_ = gpu->nccl && !is_on_many ? Way::kNccl : Way::kThroughHost;
  gpu_ = std::move(gpu);
}

// Two ranks of a host on one GPU, which NCCL refuses.
bool CudaDevice::is_gpu_shared() const {
  const HostGroup& host = comm_.host();
  std::vector<BusId> ids(host.size());
  for (int rank = 0; rank < host.size(); ++rank) {
    std::memcpy(&ids[rank], host.small(rank, comm_.agreement().parity(), sizeof(BusId)),
                sizeof(BusId));
    if (std::find(ids.begin(), ids.begin() + rank, ids[rank]) != ids.begin() + rank) return true;
  }
  return false;
}

// The host's first rank makes it.
ncclUniqueId CudaDevice::share_nccl_id() {
  const std::vector<int>& ranks = comm_.local_ranks();
  ncclUniqueId id;
  Batch batch(comm_.transport());
  if (comm_.host().rank() == 0) {
    id = NcclGroup::new_id();
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      batch.send(&id, sizeof(id), ranks[i], tags::kSetup.first);
    }
  } else {
    batch.recv(&id, sizeof(id), ranks[0], tags::kSetup.first);
  }
  batch.wait();
  return id;
}

// After an error, the program may free its buffers, so nothing shall use them any more. Work that
// waits for a stream that never comes is left alone.
void CudaDevice::stop(Gpu& gpu) {
  constexpr std::chrono::seconds kTimeout{2};
  if (gpu.nccl) gpu.nccl->abort();
  const Clock::time_point start = Clock::now();
  while (cudaStreamQuery(gpu.stream) == cudaErrorNotReady && Clock::now() - start < kTimeout) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  cudaGetLastError();
}

void CudaDevice::wait(const std::function<bool()>& is_done) const {
  PollBackoff backoff(comm_.transport(), "the GPUs of ");
  while (!is_done()) {
    backoff.wait([this] { return comm_.local_ranks(); });
  }
}

void CudaDevice::wait(const Event& event) const {
  wait([&] {
    if (event.has_come()) return true;
    if (gpu_->nccl) gpu_->nccl->check_health();
    return false;
  });
}

void CudaDevice::to_host(void* host, const void* device, std::size_t nbytes) {
  const CurrentDevice current(device_of(device));
  copy_now(host, device, nbytes, cudaMemcpyDeviceToHost, "a copy from the GPU");
}

void CudaDevice::to_device(void* device, const void* host, std::size_t nbytes) {
  const CurrentDevice current(device_of(device));
  copy_now(device, host, nbytes, cudaMemcpyHostToDevice, "a copy to the GPU");
}

}  // namespace ddl
