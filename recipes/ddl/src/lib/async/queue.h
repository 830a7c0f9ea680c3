// The operations of one communicator that run on its own thread, in the order given.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "async/group.h"
#include "async/request.h"

namespace ddl {

class Queue {
 public:
  // Limits of fusion: fused allreduces have at most `max_bytes` together (0: never), and the first
  // waits at most `max_wait` for others to join it.
  struct Limits {
    std::size_t max_bytes;
    std::chrono::duration<double, std::milli> max_wait;
  };
  // Carries out the first of these allreduces, or several, and says how each of them ended.
  using Reduce = std::function<std::vector<Outcome>(const std::vector<Arguments>&)>;

  // Called on the worker when it cannot carry out what is queued, as without memory: the other
  // ranks wait for that. Takes no memory.
  using GiveUp = std::function<void(const Error&)>;

  Queue(
      Limits limits, Reduce reduce, GiveUp give_up = [](const Error&) {});
  // Carries out the operations that are left, and ends the thread.
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Adds an operation; the first call starts the thread.
  std::shared_ptr<Request> submit(const Arguments& allreduce);
  std::shared_ptr<Request> submit(std::function<void()> run);

  // Runs `body` behind all queued operations; throws its errors.
  void run_behind(const std::function<void()>& body);
  // Whether an operation is queued or under way that the calling thread must let go first.
  bool is_ahead() const;
  // Returns when nothing is queued or under way.
  void drain();

  // Operations that have been submitted so far.
  std::uint64_t num_submitted() const { return num_submitted_.load(std::memory_order_relaxed); }

 private:
  struct Operation {
    std::shared_ptr<Request> request;
    std::optional<Arguments> allreduce;
    std::function<void()> run;  // when it is no allreduce
    Clock::time_point submitted_at;

    const Arguments* allreduce_or_null() const { return allreduce ? &*allreduce : nullptr; }
  };

  std::shared_ptr<Request> submit(std::optional<Arguments> allreduce, std::function<void()> run);
  void start_worker();
  void work();
  void hold_back(std::unique_lock<std::mutex>& lock);
  std::vector<Outcome> carry_out_first(std::unique_lock<std::mutex>& lock);
  void finish_first(std::vector<Outcome> outcomes);
  void finish_one(Outcome outcome);
  void go_on();

  const Limits limits_;
  const Reduce reduce_;
  const GiveUp give_up_;
  const std::shared_ptr<Board> board_ = std::make_shared<Board>();  // its mutex guards the rest
  std::deque<Operation> operations_;  // the first ones may be under way
  Group group_;                       // at the head of operations_
  bool is_ending_ = false;
  std::thread thread_;
  std::atomic<bool> is_busy_{false};  // operations_ is not empty: for a look without the mutex
  std::atomic<std::uint64_t> num_submitted_{0};
};

}  // namespace ddl
