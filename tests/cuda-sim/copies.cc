// The CUDA runtime: memory, copies and fills.
#include <cstring>
#include <memory>

#include "api.h"
#include "memory.h"

namespace {

using sim::call;
using sim::Kind;
using sim::Lock;
using sim::machine;
using sim::settings;

struct Side {
  bool is_device = false;
  bool is_cuda = false;
};

Side side_of(const void* pointer) {
  const sim::Block* block = sim::find(pointer);
  return {block != nullptr && block->kind == Kind::kDevice, block != nullptr};
}

bool fits(cudaMemcpyKind kind, const Side& to, const Side& from) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !to.is_device && !from.is_device;
    case cudaMemcpyHostToDevice:
      return to.is_device && !from.is_device;
    case cudaMemcpyDeviceToHost:
      return !to.is_device && from.is_device;
    case cudaMemcpyDeviceToDevice:
      return to.is_device && from.is_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

cudaError_t copy(Lock& lock, void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
                 cudaStream_t handle, const char* what, bool is_waiting) {
  const auto stream = sim::stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  const Side target = side_of(to);
  const Side source = side_of(from);
  if (!fits(kind, target, source)) return cudaErrorInvalidMemcpyDirection;
  if (nbytes == 0) return cudaSuccess;
  if (stream->capture && (is_waiting || !source.is_cuda || !target.is_cuda)) {
    return sim::refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  // What is not pinned is read before the call returns, and written before it returns.
  std::shared_ptr<std::byte[]> staged;
  const std::byte* begin = sim::alias_of(from);
  if (!source.is_cuda) {
    staged.reset(new std::byte[nbytes]);
    std::memcpy(staged.get(), from, nbytes);
    begin = staged.get();
  }
  std::byte* end = sim::alias_of(to);
  const auto point = sim::give(*stream, what, {{from, nbytes, false}, {to, nbytes, true}},
                               [end, begin, nbytes, staged] { std::memmove(end, begin, nbytes); });
  if (is_waiting || !target.is_cuda) sim::wait_for(lock, point);
  return machine().broken;
}

cudaError_t fill(Lock& lock, void* data, int value, std::size_t nbytes, cudaStream_t handle,
                 const char* what, bool is_waiting) {
  const auto stream = sim::stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (!side_of(data).is_device) return cudaErrorInvalidValue;
  std::byte* alias = sim::alias_of(data);
  const auto point = sim::give(*stream, what, {{data, nbytes, true}},
                               [alias, value, nbytes] { std::memset(alias, value, nbytes); });
  if (is_waiting) sim::wait_for(lock, point);
  return machine().broken;
}

cudaError_t take(void** pointer, Kind kind, std::size_t nbytes) {
  *pointer = nullptr;
  if (nbytes == 0) return cudaSuccess;
  if (const auto code = sim::refuse_unsafe(); code != cudaSuccess) return code;
  *pointer = sim::allocate(kind, sim::current_device(), nbytes);
  return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

}  // namespace

API cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call([&](Lock&) {
    *total = settings().memory;
    *free = *total - sim::bytes_in_use(sim::current_device());
    return cudaSuccess;
  });
}
API cudaError_t cudaMalloc(void** pointer, std::size_t nbytes) {
  return call([&](Lock&) { return take(pointer, Kind::kDevice, nbytes); });
}
API cudaError_t cudaMallocHost(void** pointer, std::size_t nbytes) {
  return call([&](Lock&) { return take(pointer, Kind::kPinned, nbytes); });
}
API cudaError_t cudaFree(void* pointer) {
  return call([&](Lock& lock) {
    if (pointer == nullptr) return cudaSuccess;
    if (const auto code = sim::refuse_unsafe(); code != cudaSuccess) return code;
    sim::wait_for_device(lock);
    const bool was_there = sim::release(pointer, Kind::kDevice, machine().program);
    return was_there ? machine().broken : cudaErrorInvalidValue;
  });
}
API cudaError_t cudaFreeHost(void* pointer) {
  return call([&](Lock&) {
    if (pointer == nullptr) return cudaSuccess;
    const bool was_there = sim::release(pointer, Kind::kPinned, machine().program);
    return was_there ? cudaSuccess : cudaErrorInvalidValue;
  });
}
API cudaError_t cudaMemcpy(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind) {
  return call(
      [&](Lock& lock) { return copy(lock, to, from, nbytes, kind, nullptr, "cudaMemcpy", true); });
}
API cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t nbytes, cudaMemcpyKind kind,
                                cudaStream_t stream) {
  return call([&](Lock& lock) {
    return copy(lock, to, from, nbytes, kind, stream, "cudaMemcpyAsync", false);
  });
}
API cudaError_t cudaMemset(void* data, int value, std::size_t nbytes) {
  return call(
      [&](Lock& lock) { return fill(lock, data, value, nbytes, nullptr, "cudaMemset", false); });
}
API cudaError_t cudaMemsetAsync(void* data, int value, std::size_t nbytes, cudaStream_t stream) {
  return call([&](Lock& lock) {
    return fill(lock, data, value, nbytes, stream, "cudaMemsetAsync", false);
  });
}
API cudaError_t cudaHostAlloc(void** pointer, std::size_t nbytes, unsigned) {
  return cudaMallocHost(pointer, nbytes);
}
API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t nbytes,
                                    cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, nbytes, cudaMemcpyDeviceToDevice, stream);
}
API cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                                  std::size_t from_pitch, std::size_t width, std::size_t height,
                                  cudaMemcpyKind kind, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t code = cudaMemcpyAsync(static_cast<std::byte*>(to) + row * to_pitch,
                                             static_cast<const std::byte*>(from) + row * from_pitch,
                                             width, kind, stream);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}
API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call([&](Lock&) {
    const sim::Block* block = sim::find(pointer);
    *attributes = {};
    attributes->device = -2;  // as where the memory is not CUDA's
    attributes->hostPointer = const_cast<void*>(pointer);
    if (block == nullptr) return cudaSuccess;
    const bool is_device = block->kind == Kind::kDevice;
    attributes->type = is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
    attributes->device = block->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    if (is_device) attributes->hostPointer = nullptr;
    return cudaSuccess;
  });
}
