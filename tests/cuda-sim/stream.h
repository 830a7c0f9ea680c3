// Streams: each is a thread that takes operations in order, after a random while.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "graph.h"
#include "memory.h"
#include "order.h"

namespace sim {

// A point in a stream's work: after it, what came before is done.
struct Point {
  bool is_done = false;
  Clock clock;
  std::chrono::steady_clock::time_point came;  // of the host's clock
};

struct Operation {
  std::string who;
  std::function<void()> body;  // none: only a point
  std::vector<std::shared_ptr<Use>> uses;
  std::vector<std::shared_ptr<Point>> after;
  Clock given;  // what the program had waited for
  std::shared_ptr<Point> point;
};

struct Stream {
  int number;
  int device;
  bool is_blocking;  // waits for the default stream, and that one for it
  std::size_t actor;
  std::mt19937_64 random;
  Clock clock;
  std::deque<Operation> queue;
  std::condition_variable has_work;  // or an end; its own, since PyTorch opens 128 streams at once
  std::shared_ptr<Point> last;
  std::shared_ptr<Capture> capture;  // null: it is not captured
  bool is_ended = false;
};

struct Event {
  int device;
  std::shared_ptr<Point> point;      // null: never recorded
  std::shared_ptr<Capture> capture;  // in which it was recorded last; null: in none
};

// What all threads share. The lock is held for everything but the bodies of operations.
struct Machine {
  std::mutex mutex;
  std::condition_variable has_come;                // some point
  Clock program;                                   // of all threads of the program together
  std::map<int, std::shared_ptr<Stream>> streams;  // by number; 0 to -devices are default streams
  // Of streams that have ended: who takes the actor goes on from its clock.
  std::vector<std::pair<std::size_t, Clock>> free_actors;
  std::size_t actors = 0;
  int last_stream = 0;
  std::uint64_t begun = 0;
  cudaError_t broken = cudaSuccess;  // from the fault on, every call returns it
};

Machine& machine();

// The thread's current device.
int& current_device();

// The handle's stream, on the current device where it is the default one; null where there is none.
std::shared_ptr<Stream> stream_of(cudaStream_t handle);
cudaStream_t open_stream(bool is_blocking);
void close_stream(const std::shared_ptr<Stream>& stream);

// Gives the stream an operation, or the graph that it is captured into: then there is no point.
std::shared_ptr<Point> give(Stream& stream, const std::string& what,
                            const std::vector<Range>& ranges, std::function<void()> body,
                            std::shared_ptr<Point> after = nullptr);

// The program waits, and has an order with all before the point from now on.
void wait_for(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Point>& point);
// The same, if the point has come.
bool has_come(const std::shared_ptr<Point>& point);

}  // namespace sim

// For the other libraries of the simulation.
extern "C" {
// As sim::give, on the current device.
cudaError_t cudasim_give(cudaStream_t stream, const std::string& what,
                         const std::vector<sim::Range>& ranges, std::function<void()> body);
// Where operations find the byte.
std::byte* cudasim_alias(const void* pointer);
// 0: not CUDA's; 1: pinned; 2: of a device.
int cudasim_kind(const void* pointer, int* device);
int cudasim_current_device();
cudaError_t cudasim_broken();
}
