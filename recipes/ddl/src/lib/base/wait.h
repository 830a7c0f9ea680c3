// Waiting: spin while the answer is likely to come at once, then give the core away, then sleep.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace ddl {

inline void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__powerpc64__)
  asm volatile("or 27,27,27" ::: "memory");
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");  // longer than `yield`, which most processors take for a nop
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

using Clock = std::chrono::steady_clock;

// How long a waiting process yields before it sleeps. A time limits the yields, not a count: on a
// busy machine one yield can cost a time slice, and a sleeper that is woken gets its core back
// sooner than a process that keeps yielding.
inline constexpr std::chrono::microseconds kYielding{100};

// For how long this process has waited for something. The clock runs on while a process is stopped,
// as by a batch system that suspends its job, so whoever waits looks again and again, and no more
// than a second counts between two looks.
class Waited {
 public:
  explicit Waited(Clock::time_point since = Clock::now()) : last_(since) {}
  double seconds() {
    const Clock::time_point now = Clock::now();
    sum_ += std::min<Clock::duration>(now - last_, std::chrono::seconds{1});
    last_ = now;
    return sum_.count();
  }

 private:
  Clock::time_point last_;
  std::chrono::duration<double> sum_{0};
};

// The time to spin before yielding: long when every rank has a core, else hardly any. 1000 pauses
// are some 50 us: more than a hand-over takes, and too short to matter.
class SpinBudget {
 public:
  explicit SpinBudget(int ranks_on_host);
  int spins() const { return has_cores_ ? 1000 : 10; }
  bool has_cores() const { return has_cores_; }  // one for every rank

 private:
  bool has_cores_;
};

// A counter in shared memory that one process raises and others wait for. It counts modulo 2^32:
// comparisons are by signed difference.
struct alignas(64) Flag {
  std::atomic<std::uint32_t> value;
  std::atomic<std::uint32_t> sleepers;

  bool reached(std::uint32_t target) const {
    return static_cast<std::int32_t>(value.load(std::memory_order_acquire) - target) >= 0;
  }
  void post(std::uint32_t next) {
    set(next);
    wake();
  }
  // post() in two halves, for who has something to do in between: wake() waits until the processor
  // has written everything, and must follow before this rank waits long.
  void set(std::uint32_t next) { value.store(next, std::memory_order_release); }
  void wake();

  // True once `target` is reached; false when it takes longer than spinning, yielding and one sleep
  // of at most `kSleep`: the time for the caller to look whether waiting still makes sense.
  bool wait_a_while(std::uint32_t target, const SpinBudget& budget);

  static constexpr std::chrono::milliseconds kSleep{50};
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free, "flags live in shared memory");

}  // namespace ddl
