#include "base/wait.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#include "base/cpus.h"

namespace ddl {
namespace {

// The PRIVATE futex operations do not serve, since waiter and waker are different processes.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, word, operation, value, timeout, nullptr, 0);
}

}  // namespace

// Where Linux does not say how many there are, there is one.
SpinBudget::SpinBudget(int ranks_on_host)
    : has_cores_(ranks_on_host <= std::max(1, static_cast<int>(own_cpus().count()))) {}

void Flag::wake() {
  // Pairs with the sleeper's fence: either it sees the new value or we see the sleeper.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_relaxed) != 0) futex(&value, FUTEX_WAKE, INT_MAX, nullptr);
}

bool Flag::wait_a_while(std::uint32_t target, const SpinBudget& budget) {
  for (int i = 0; i < budget.spins(); ++i) {
    if (reached(target)) return true;
    cpu_relax();
  }
  const Clock::time_point start = Clock::now();
  do {
    if (reached(target)) return true;
    sched_yield();
  } while (Clock::now() - start < kYielding);
  const timespec sleep{0, std::chrono::nanoseconds(kSleep).count()};
  // First counted, then read: see wake(). The kernel does not sleep if the value has changed since.
  sleepers.fetch_add(1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const std::uint32_t seen = value.load(std::memory_order_relaxed);
  if (static_cast<std::int32_t>(seen - target) < 0) futex(&value, FUTEX_WAIT, seen, &sleep);
  sleepers.fetch_sub(1, std::memory_order_relaxed);
  return reached(target);
}

}  // namespace ddl
