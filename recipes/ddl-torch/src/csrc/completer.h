// Threads that complete futures. What hangs on a future (`then`) is the user's code, and it may
// wait for a later operation of the same lane, as PowerSGD's hook does: a lane must not run it
// itself.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace ddl_torch {

class Completer {
 public:
  Completer();
  ~Completer();
  Completer(const Completer&) = delete;
  Completer& operator=(const Completer&) = delete;

  // Runs `task` soon, whatever the tasks before it wait for; it must not throw.
  void give(std::function<void()> task);

  // Ends after what has been given, unless one of its own threads closes it. What is given later is
  // done at once, by the caller.
  void close();

  // Waits until nothing is left to do; false when `deadline` comes first.
  bool drain(std::chrono::steady_clock::time_point deadline);

 private:
  struct State;
  static void work(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;  // its threads may outlive us by a moment
};

}  // namespace ddl_torch
