// The reclaim hook: when torch's caching allocator finds no free block and the limit is near, saved
// tensors that no plan moves are copied to the host and their memory is given up, oldest first.
//
// `Execute` is called with the allocator's lock held, and without a size. So no Python runs here,
// and nothing is allocated: each offered storage comes with its slot on the host.
#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <list>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lms {
namespace {

using Storage = c10::intrusive_ptr<c10::StorageImpl>;

struct Offer {
  Storage storage;
  void* slot;       // pinned host memory of the storage's size
  uint32_t owners;  // how many owners the storage has when only LMS holds it
  std::list<uint64_t>::iterator position;
  bool gone = false;
};

class ReclaimHook {
 public:
  static ReclaimHook& get() {
    static ReclaimHook hook;
    return hook;
  }

  // Sets the reserved bytes at which the hook begins, and how many to give up at a time.
  void configure(size_t limit, size_t step) {
    std::lock_guard guard(mutex_);
    limit_ = limit;
    step_ = step;
  }

  // A stream of the program's, whose work may still write what is offered.
  void add_stream(uintptr_t stream) {
    std::lock_guard guard(mutex_);
    streams_.push_back(reinterpret_cast<cudaStream_t>(stream));
  }

  uint64_t offer(uintptr_t storage, uintptr_t slot, uint32_t owners) {
    auto kept = Storage::reclaim_copy(reinterpret_cast<c10::StorageImpl*>(storage));
    std::lock_guard guard(mutex_);
    const uint64_t ticket = ++last_;
    order_.push_back(ticket);
    offers_.emplace(ticket, Offer{std::move(kept), reinterpret_cast<void*>(slot), owners + 1,
                                  std::prev(order_.end())});
    return ticket;
  }

  // Takes an offer back; whether its memory is gone, and the slot holds its bytes.
  bool withdraw(uint64_t ticket) {
    std::unique_lock guard(mutex_);
    const auto found = offers_.find(ticket);
    if (found == offers_.end()) return false;
    Offer offer = std::move(found->second);
    offers_.erase(found);
    if (!offer.gone) order_.erase(offer.position);
    guard.unlock();  // the storage may die here, and that takes the allocator's lock
    return offer.gone;
  }

  // Gives up about a step; whether anything was.
  bool give_up() {
    std::unique_lock guard(mutex_, std::try_to_lock);
    if (!guard.owns_lock() || !limit_ || order_.empty()) return false;
    const auto stream = c10::cuda::getCurrentCUDAStream();
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(stream.device_index());
    if (static_cast<size_t>(stats.reserved_bytes[0].current) + step_ < limit_) return false;
    if (!wait_for_producers(stream.stream())) return false;
    size_t freed = 0;
    for (auto next = order_.begin(); next != order_.end() && freed < step_;) {
      Offer& offer = offers_.at(*next);
      if (offer.storage.use_count() > offer.owners) {
        ++next;
        continue;
      }
      const size_t bytes = offer.storage->nbytes();
      if (cudaMemcpyAsync(offer.slot, offer.storage->data(), bytes, cudaMemcpyDeviceToHost,
                          stream.stream()) != cudaSuccess ||
          cudaStreamSynchronize(stream.stream()) != cudaSuccess) {
        break;
      }
      offer.gone = true;
      next = order_.erase(next);
      offer.storage->set_data_ptr(at::DataPtr(nullptr, offer.storage->device()));
      freed += bytes;
    }
    return freed > 0;
  }

 private:
  // Whether the program's streams were waited for; a graph being captured must not wait.
  bool wait_for_producers(cudaStream_t current) const {
    if (is_captured(current) || std::any_of(streams_.begin(), streams_.end(), is_captured)) {
      return false;
    }
    return std::all_of(streams_.begin(), streams_.end(),
                       [](auto stream) { return cudaStreamSynchronize(stream) == cudaSuccess; });
  }

  static bool is_captured(cudaStream_t stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(stream, &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
  }

  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;  // of the program
  std::list<uint64_t> order_;          // offered and there, the oldest first
  std::unordered_map<uint64_t, Offer> offers_;
  uint64_t last_ = 0;
  size_t limit_ = 0, step_ = 0;
};

class Reclaim : public c10::FreeMemoryCallback {
 public:
  bool Execute() override { return ReclaimHook::get().give_up(); }
};

}  // namespace
}  // namespace lms

namespace c10 {
REGISTER_FREE_MEMORY_CALLBACK("lms", lms::Reclaim)
}

PYBIND11_MODULE(_reclaim, module) {
  using lms::ReclaimHook;
  module.doc() = "Gives up saved tensors when torch's CUDA allocator runs short.";
  const auto free = pybind11::call_guard<pybind11::gil_scoped_release>();
  module.def(
      "configure", [](size_t limit, size_t step) { ReclaimHook::get().configure(limit, step); },
      free, "Begin at `limit` reserved bytes (0: never) and give up `step` at a time.");
  module.def(
      "add_stream", [](uintptr_t stream) { ReclaimHook::get().add_stream(stream); }, free,
      "Name a stream of the program's; giving up waits for its work.");
  module.def(
      "offer",
      [](uintptr_t storage, uintptr_t slot, uint32_t owners) {
        return ReclaimHook::get().offer(storage, slot, owners);
      },
      free, "Offer a storage; returns a ticket.");
  module.def(
      "withdraw", [](uint64_t ticket) { return ReclaimHook::get().withdraw(ticket); }, free,
      "Take an offer back; whether the storage's bytes are in the slot now.");
}
