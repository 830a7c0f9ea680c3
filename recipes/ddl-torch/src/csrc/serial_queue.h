// A queue with a thread, which runs operations one after the other in the order given.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "work.h"

namespace ddl_torch {

// Fails an operation that has not begun, with `reason`.
void fail_cancelled(OperationWork& work, const std::string& reason);

class SerialQueue {
 public:
  explicit SerialQueue(const std::string& name);  // at most 15 characters show up in ps and gdb
  ~SerialQueue();                                 // runs the operations that have been given
  SerialQueue(const SerialQueue&) = delete;
  SerialQueue& operator=(const SerialQueue&) = delete;

  void give(c10::intrusive_ptr<OperationWork> work);

  // Waits until nothing is left to do; false when `deadline` comes first.
  bool drain(std::chrono::steady_clock::time_point deadline);

  // Fails the operations that have not begun with `reason`; the one under way goes on.
  void cancel_waiting(const std::string& reason);

  // The operation under way, "" when idle.
  std::string current();

 private:
  void loop(const std::string& name);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<c10::intrusive_ptr<OperationWork>> waiting_;
  c10::intrusive_ptr<OperationWork> running_;
  bool is_closing_ = false;
  std::thread thread_;
};

}  // namespace ddl_torch
