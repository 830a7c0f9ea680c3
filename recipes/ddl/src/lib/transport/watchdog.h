// Watches MPI's own calls that wait for all ranks and cannot be given a limit. After the timeout it
// names the call, so that nobody looks at a job that hangs without a word.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace ddl {

class Watchdog {
 public:
  explicit Watchdog(const char* call);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void wait(const char* call);

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace ddl
