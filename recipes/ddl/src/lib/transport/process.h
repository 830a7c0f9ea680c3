// A process in one word, which ranks keep in the memory that they share.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace ddl {

// A process's number and its start time: they name it for good, since numbers are given again. 0
// names no process. One word, so that another process reads both or neither.
class ProcessName {
 public:
  constexpr ProcessName() = default;
  constexpr explicit ProcessName(std::uint64_t word) : word_(word) {}
  // The calling process; none where /proc does not tell when it started.
  static ProcessName own();

  constexpr std::uint64_t word() const { return word_; }
  constexpr pid_t pid() const { return static_cast<pid_t>(word_ & ((1U << kPidBits) - 1)); }
  // Whether it has ended, even if its parent has not collected it yet.
  bool has_ended() const;

 private:
  static constexpr int kPidBits = 22;  // the kernel's PID_MAX_LIMIT; ticks have 1390 years

  static ProcessName of(pid_t pid);

  std::uint64_t word_ = 0;
};

}  // namespace ddl
