// Threads that complete futures. A future's callbacks (`then`) are the user's code. They may wait
// for a later operation of the same queue, as PowerSGD's hook does, so the queue's own thread must
// not run them.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ddl_torch {

class CompletionPool {
 public:
  CompletionPool();
  ~CompletionPool();
  CompletionPool(const CompletionPool&) = delete;
  CompletionPool& operator=(const CompletionPool&) = delete;

  // Runs `task` soon, whatever the tasks before it wait for; it must not throw.
  void give(std::function<void()> task);

  // Waits for the tasks that have been given, unless one of the pool's own threads closes it. The
  // caller itself runs a task that is given later.
  void close();

  // Waits until nothing is left to do; false when `deadline` comes first.
  bool drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // the threads may outlive the pool by a moment
};

}  // namespace ddl_torch
