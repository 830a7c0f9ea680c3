#include "stream.h"

#include <signal.h>

#include <thread>
#include <tuple>

#include "settings.h"

namespace sim {
namespace {

void become_actor(Stream& stream) {
  Machine& all = machine();
  if (all.free_actors.empty()) {
    stream.actor = all.actors++;
    return;
  }
  std::tie(stream.actor, stream.clock) = all.free_actors.back();
  all.free_actors.pop_back();
}

// The fault that was asked for, at its operation.
void break_down(Machine& all) {
  const Fault& fault = settings().fault;
  if (++all.begun != fault.at) return;
  if (fault.kind == "kill") raise(SIGKILL);
  if (fault.kind == "lost") all.broken = cudaErrorDevicesUnavailable;
  if (fault.kind == "ecc") all.broken = cudaErrorECCUncorrectable;
  if (fault.kind == "illegal") all.broken = cudaErrorIllegalAddress;
}

void run(Machine& all, Stream& stream, Operation operation, std::unique_lock<std::mutex>& lock) {
  for (const auto& point : operation.after) {
    all.has_come.wait(lock, [&] { return point->is_done; });
    stream.clock.join(point->clock);
  }
  if (settings().delay > 0 && operation.body) {
    const std::uint64_t most = stream.random() % 4 == 0 ? settings().delay : settings().delay / 8;
    const auto delay = std::chrono::microseconds(stream.random() % (most + 1));
    lock.unlock();
    std::this_thread::sleep_for(delay);
    lock.lock();
  }
  stream.clock.join(operation.given);
  const std::uint64_t step = stream.clock.tick(stream.actor);
  begin_uses(operation.uses, stream.clock, step);
  if (operation.body) {
    break_down(all);
    if (all.broken == cudaSuccess) {
      lock.unlock();
      operation.body();
      lock.lock();
    }
  }
  operation.point->clock = stream.clock;
  operation.point->came = std::chrono::steady_clock::now();
  operation.point->is_done = true;
  all.has_come.notify_all();
}

void work(const std::shared_ptr<Stream>& stream) {
  Machine& all = machine();
  std::unique_lock<std::mutex> lock(all.mutex);
  while (true) {
    stream->has_work.wait(lock, [&] { return stream->is_ended || !stream->queue.empty(); });
    if (stream->queue.empty()) break;
    Operation operation = std::move(stream->queue.front());
    stream->queue.pop_front();
    run(all, *stream, std::move(operation), lock);
  }
  all.free_actors.emplace_back(stream->actor, stream->clock);
}

std::shared_ptr<Stream> start(int number, bool is_blocking) {
  Machine& all = machine();
  auto stream = std::make_shared<Stream>();
  stream->number = number;
  stream->device = current_device();
  stream->is_blocking = is_blocking;
  become_actor(*stream);
  stream->random.seed(settings().seed * 7919 + static_cast<std::uint64_t>(number));
  all.streams[number] = stream;
  std::thread(work, stream).detach();
  return stream;
}

bool is_default(const Stream& stream) { return stream.number <= 0; }

}  // namespace

Machine& machine() {
  static auto* const all = new Machine;  // threads use it until the process ends
  return *all;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

std::shared_ptr<Stream> stream_of(cudaStream_t handle) {
  if (handle == cudaStreamPerThread) die("cudaStreamPerThread is not simulated");
  auto& streams = machine().streams;
  if (handle == nullptr || handle == cudaStreamLegacy) {
    const auto found = streams.find(-current_device());
    return found == streams.end() ? start(-current_device(), true) : found->second;
  }
  const auto number = static_cast<int>(reinterpret_cast<std::uintptr_t>(handle) >> 4);
  const auto found = streams.find(number);
  return found == streams.end() ? nullptr : found->second;
}

cudaStream_t open_stream(bool is_blocking) {
  const int number = ++machine().last_stream;
  start(number, is_blocking);
  return reinterpret_cast<cudaStream_t>(static_cast<std::uintptr_t>(number) << 4);
}

void close_stream(const std::shared_ptr<Stream>& stream) {
  stream->is_ended = true;
  machine().streams.erase(stream->number);
  stream->has_work.notify_one();
}

std::shared_ptr<Point> give(Stream& stream, const std::string& what,
                            const std::vector<Range>& ranges, std::function<void()> body,
                            std::shared_ptr<Point> after) {
  if (stream.capture) {
    if (body) stream.capture->nodes.push_back({what, ranges, std::move(body)});
    return nullptr;
  }
  Machine& all = machine();
  const std::string who = what +
                          (is_default(stream) ? " in the default stream"
                                              : " in stream " + std::to_string(stream.number)) +
                          " of GPU " + std::to_string(stream.device);
  Operation operation;
  operation.who = who;
  operation.body = std::move(body);
  operation.uses = announce_uses(ranges, who, stream.actor);
  operation.given = all.program;
  operation.point = std::make_shared<Point>();
  if (after) operation.after.push_back(std::move(after));
  // Blocking streams and the default one of their device wait for each other.
  for (const auto& [number, other] : all.streams) {
    const bool is_pair = is_default(*other) != is_default(stream);
    if (other->device == stream.device && is_pair && other->is_blocking && stream.is_blocking &&
        other->last) {
      operation.after.push_back(other->last);
    }
  }
  stream.last = operation.point;
  stream.queue.push_back(std::move(operation));
  stream.has_work.notify_one();
  return stream.last;
}

void wait_for(std::unique_lock<std::mutex>& lock, const std::shared_ptr<Point>& point) {
  if (!point) return;
  machine().has_come.wait(lock, [&] { return point->is_done; });
  has_come(point);
}

bool has_come(const std::shared_ptr<Point>& point) {
  if (!point) return true;
  if (!point->is_done) return false;
  machine().program.join(point->clock);
  open_to(machine().program);
  return true;
}

}  // namespace sim
