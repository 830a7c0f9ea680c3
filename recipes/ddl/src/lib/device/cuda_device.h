// The collectives of one communicator on GPUs: cuda_device.cc sets the GPU up, and
// cuda_collectives.cc moves the data.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "comm/collective_table.h"
#include "comm/comm.h"
#include "comm/device_interface.h"
#include "device/cuda.h"
#include "device/nccl.h"

namespace ddl {

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(Comm& comm) : comm_(comm) {}
  ~CudaDevice() override;

  void run(const Row& row, const Arguments& args) override;
  void to_host(void* host, const void* device, std::size_t nbytes) override;
  void to_device(void* device, const void* host, std::size_t nbytes) override;

 private:
  // Chunks that are under way at a time.
  static constexpr std::size_t kSlots = 2;

  // A communicator's state on its GPU, from its first collective on.
  struct Gpu {
    Stream stream;  // of all work here, so that all ranks of a host do it in one order
    Event ready;    // the program's stream has come to the call
    Event finished;
    std::array<Event, kSlots> brought;  // a chunk's input is in host memory
    std::array<PinnedMemory, kSlots> input;
    std::array<PinnedMemory, kSlots> output;
    std::array<DeviceMemory, kSlots> work;
    std::optional<NcclGroup> nccl;  // of this host's ranks; none: through host memory
    std::unique_ptr<Comm> lane;     // the same local rank on every host; several hosts only
  };

  // Runs `body` on the communicator's GPU, after the work that the thread's stream has been given,
  // and returns when the GPU is done with it.
  void run_on(int device, const Call& call, const std::function<void(Gpu&)>& body);
  // The ranks' agreement on the call.
  void meet(const Call& call);
  // Puts NCCL's operation into the CUDA graph that the thread's stream is captured into. Refuses,
  // before the ranks have met, where there is none.
  void capture(int device, const Row& row, const Call& call, const Arguments& args);
  // The GPU of the call's buffers.
  int find_device(const Row& row, const Call& call, const Arguments& args);
  int check_device(const Call& call, const void* buffer);
  void set_up();
  bool is_gpu_shared() const;
  ncclUniqueId share_nccl_id();
  void stop(Gpu& gpu);

  // Waits without blocking; throws when a rank is lost, NCCL has failed, or time is up.
  void wait(const std::function<bool()>& is_done) const;
  void wait(const Event& event) const;

  // The steps of chunk c, in slot c % kSlots. `bring` and `deliver` only give work to the stream.
  // The work of `bring` is done when `exchange` runs, and that of `deliver` when the slot is used
  // again.
  struct Steps {
    std::function<void(std::size_t c)> bring;
    std::function<void(std::size_t c)> exchange;
    std::function<void(std::size_t c)> deliver;
  };
  void in_chunks(Gpu& gpu, std::size_t chunks, const Steps& steps);
  void allreduce_between_hosts(Gpu& gpu, const Arguments& args);
  // Through host memory: a chunk has as many bytes of each block, and all ranks move them there by
  // the row's functions.
  struct Rows {
    std::byte* data;     // null: none on this rank
    std::size_t blocks;  // one after the other; as many on all ranks
  };
  Rows rows_of(const Side& side, const void* buffer, int root) const;
  void through_host(Gpu& gpu, const Row& row, const Call& call, const Arguments& args);
  std::size_t part_bytes(std::size_t blocks, std::size_t width) const;

  Comm& comm_;
  // How collectives go, from the first one on.
  enum class Way { kUnknown, kNccl, kThroughHost };

  std::atomic<int> device_{-1};  // -1: no collective so far
  std::atomic<Way> way_{Way::kUnknown};
  std::unique_ptr<Gpu> gpu_;
};

}  // namespace ddl
