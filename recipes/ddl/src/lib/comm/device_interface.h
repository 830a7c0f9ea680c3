// Collectives on buffers in the memory of a GPU. The CUDA variant has them (cuda_device.h), the CPU
// variant has not (none.cc): CMake compiles one or the other, and nothing else knows of CUDA.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <memory>

#include "base/arguments.h"

namespace ddl {

class Comm;
struct Row;

// Whether the program's pointer is to memory of a GPU. False on null, and in the CPU variant.
bool is_on_device(const void* pointer);

// "CUDA 12.9, NCCL 2.32.3"; "" in the CPU variant.
const char* cuda_library();

// A cudaStream_t: collectives on a GPU that this thread calls begin after the work that it has been
// given so far. Null is CUDA's default stream.
inline thread_local void* t_stream = nullptr;

// Makes `stream` the thread's for its lifetime.
class StreamScope {
 public:
  explicit StreamScope(void* stream) : before_(t_stream) { t_stream = stream; }
  ~StreamScope() { t_stream = before_; }
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  void* before_;
};

// Throws unless there is a GPU to communicate with, and the reason why there is none.
void check_device_present(const char* function);

// Throws where the buffer is on a GPU and the thread's stream is being captured into a CUDA graph,
// for what goes through host memory: it would be missing in the graph, and CUDA would end both with
// errors.
void check_not_captured(const char* function, const void* buffer);

// The ranks of one host, each on a GPU of its own: rows name one of these operations. All buffers
// are on GPUs.
class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual void allreduce(const Arguments& args) = 0;
  virtual void reduce(const Arguments& args) = 0;
  virtual void reduce_scatter(const Arguments& args) = 0;
  virtual void broadcast(const Arguments& args) = 0;
  virtual void allgather(const Arguments& args) = 0;
};

// A communicator's GPUs. All buffers are on one GPU, the one of the first.
class Device {
 public:
  virtual ~Device() = default;
  // Runs a collective on buffers in the memory of GPUs; there is something to move. The result is
  // in place when it returns; but where the thread's stream is being captured into a CUDA graph,
  // the graph has the collective then.
  virtual void run(const Row& row, const Arguments& args) = 0;

  // Copies after the work in the thread's stream; any thread may call these at any time.
  virtual void to_host(void* host, const void* device, std::size_t nbytes) = 0;
  virtual void to_device(void* device, const void* host, std::size_t nbytes) = 0;
};

// Costs nothing before its first collective. Null in the CPU variant.
std::unique_ptr<Device> make_device(Comm& comm);

}  // namespace ddl
