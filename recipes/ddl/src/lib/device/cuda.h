// CUDA's handles as objects that free them, and its codes as errors.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace ddl {

// Throws DDL_ERROR_DEVICE with CUDA's own words when `code` is not cudaSuccess.
void check_cuda(cudaError_t code, const char* what);

// The GPU that the memory belongs to.
int device_of(const void* pointer);

// Whether the thread's stream is being captured into a CUDA graph; kLost: an error has ended that,
// or it is the default stream beside a captured one, which may not be used.
enum class Capture { kNone, kActive, kLost };
Capture capture_on(int device);

// Makes `device` the thread's current one for its lifetime.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);
  ~CurrentDevice() { cudaSetDevice(before_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int before_ = 0;
};

// Runs in order with the streams that it is told to wait for, and with no others.
class Stream {
 public:
  Stream();
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// A point in a stream.
class Event {
 public:
  Event();
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream);
  // Work that `stream` is given from now on waits for the event.
  void block(cudaStream_t stream) const;
  bool has_come() const;

 private:
  cudaEvent_t event_ = nullptr;
};

// Memory that grows. `allocate` throws.
template <void* (*allocate)(std::size_t nbytes), cudaError_t (*release)(void*)>
class Memory {
 public:
  Memory() = default;
  ~Memory() { free(); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // The contents are lost when it has to grow; nobody may be using them then.
  std::byte* at_least(std::size_t nbytes) {
    if (nbytes_ < nbytes) {
      free();
      data_ = allocate(nbytes);
      nbytes_ = nbytes;
    }
    return static_cast<std::byte*>(data_);
  }

 private:
  void free() {
    if (data_ != nullptr) release(data_);
    data_ = nullptr;
    nbytes_ = 0;
  }

  void* data_ = nullptr;
  std::size_t nbytes_ = 0;
};

void* allocate_pinned(std::size_t nbytes);
void* allocate_on_device(std::size_t nbytes);

// Host memory that the GPU reads and writes by itself.
using PinnedMemory = Memory<allocate_pinned, cudaFreeHost>;
// Memory of the current device.
using DeviceMemory = Memory<allocate_on_device, cudaFree>;

}  // namespace ddl
