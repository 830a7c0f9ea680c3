// The words that ranks share, and the hand-overs of a collective on one host, under Relacy: it runs
// threads in the place of ranks, one step of one thread after the other, in many random orders. A
// load returns any value that C++'s memory model allows it, so that what x86 forgives is seen here.
// The code of Flag and of SharedMail is libddl's own; its calls of the kernel are modelled.
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>

namespace model {

// Time that passes by being looked at: a rank that yields looks twice and then sleeps.
struct Clock {
  using duration = std::chrono::nanoseconds;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Clock>;
  static time_point now() {
    static int looks = 0;
    return time_point(std::chrono::microseconds(60) * ++looks);
  }
};

// The kernel's futex: it compares and falls asleep under the lock under which it wakes. There is no
// time limit, so that a wake-up that gets lost leaves a thread asleep, which Relacy reports.
struct Kernel {
  rl::mutex lock;
  rl::condition_variable_any awake;
};
Kernel* kernel = nullptr;

long syscall(long, std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
             const timespec*, const void*, int) {
  kernel->lock.lock($);
  if (operation == FUTEX_WAKE) {
    kernel->awake.notify_all($);
  } else if (word->load(std::memory_order_relaxed) == value) {
    kernel->awake.wait(kernel->lock, $);
  }
  kernel->lock.unlock($);
  return 0;
}

int sched_yield() {
  rl::yield(1, $);
  return 0;
}

}  // namespace model

namespace std::chrono {
using model_clock = model::Clock;
}

#define steady_clock model_clock
#define syscall model::syscall
#define sched_yield model::sched_yield
#define static_assert(condition, text)  // Relacy's variables are larger
#include "base/wait.cc"
#include "transport/shared_words.h"
#undef steady_clock
#undef syscall
#undef sched_yield
#undef static_assert

namespace {

using ddl::Flag;
using ddl::SharedMail;

constexpr int kRanks = 2;

const ddl::SpinBudget& budget() {
  static const ddl::SpinBudget few(1'000'000);  // more ranks than cores: 10 spins, then sleep
  return few;
}

void wait(Flag& flag, std::uint32_t target) {
  while (!flag.wait_a_while(target, budget())) {
  }
}

// Relacy makes each test anew for each order of steps, and all of its memory with it.
template <class Test>
struct Suite : rl::test_suite<Test, kRanks> {
  model::Kernel own_kernel;
  void before() { model::kernel = &own_kernel; }
};

// One rank hands data to another and back, each asleep or awake when they come.
struct HandOver : Suite<HandOver> {
  Flag flags[kRanks];
  rl::var<int> data[kRanks];

  void thread(unsigned rank) {
    for (int round = 1; round <= 2; ++round) {
      if (rank == 0) {
        data[0]($) = 10 * round;
        flags[0].post(round);
        wait(flags[1], round);
        RL_ASSERT(data[1]($) == -10 * round);
      } else {
        wait(flags[0], round);
        data[1]($) = -static_cast<int>(data[0]($));
        flags[1].post(round);
      }
    }
  }
};

// As HostGroup::announce and wait_all_announced, call after call: each rank reads the data beside
// the others' calls, by the mail where it sees that in time and else by the flag.
struct Announcements : Suite<Announcements> {
  Flag arrived[kRanks];
  SharedMail mails[kRanks][2];
  rl::var<int> tiny[kRanks][2];

  void thread(unsigned rank) {
    for (std::uint32_t call = 1; call <= 4; ++call) {
      const int parity = call % 2;
      tiny[rank][parity]($) = static_cast<int>(100 * rank + call);
      mails[rank][parity].write(ddl::Call{}, call);
      arrived[rank].set(call);
      int polls = 3;
      for (auto& theirs : mails) {
        while (!theirs[parity].is_of(call) && --polls > 0) ddl::cpu_relax();
      }
      arrived[rank].wake();
      if (polls <= 0) {
        for (Flag& flag : arrived) wait(flag, call);
      }
      for (unsigned other = 0; other < kRanks; ++other) {
        const int read = tiny[other][parity]($);
        RL_ASSERT(read == static_cast<int>(100 * other + call));
      }
    }
  }
};

// As SharedAllreduce: a chunk's inputs lie in an area, each rank sums its slice, each copies the
// sums out. An area is filled again when this rank has copied it out.
struct Allreduce : Suite<Allreduce> {
  static constexpr unsigned kSlots = 2;
  static constexpr unsigned kChunks = 4;
  Flag arrived[kRanks];
  Flag done[kRanks];
  rl::var<int> input[kSlots][kRanks];  // the slice that the other rank sums
  rl::var<int> sum[kSlots][kRanks];    // by slice

  void thread(unsigned rank) {
    const unsigned other = 1 - rank;
    unsigned copied_in = 0;
    unsigned reduced = 0;
    unsigned copied_out = 0;
    const auto copy_in = [&] {
      input[copied_in % kSlots][rank]($) = static_cast<int>(copied_in + rank);
      arrived[rank].post(++copied_in);
    };
    const auto reduce = [&] {
      const int theirs = input[reduced % kSlots][other]($);
      sum[reduced % kSlots][rank]($) = theirs + static_cast<int>(reduced + rank);
      done[rank].post(++reduced);
    };
    const auto copy_out = [&] {
      for (auto& slice : sum[copied_out % kSlots]) {
        RL_ASSERT(slice($) == static_cast<int>(2 * copied_out + 1));
      }
      ++copied_out;
    };
    while (copied_out < kChunks) {
      if (copied_in < kChunks && copied_in < copied_out + kSlots) {
        copy_in();
      } else if (reduced < copied_in && arrived[other].reached(reduced + 1)) {
        reduce();
      } else if (copied_out < reduced && done[other].reached(copied_out + 1)) {
        copy_out();
      } else if (copied_out < reduced) {
        wait(done[other], copied_out + 1);
      } else {
        wait(arrived[other], reduced + 1);
      }
    }
  }
};

template <class Test>
bool holds(const char* name, unsigned orders) {
  std::ostringstream progress;
  rl::test_params params;
  params.iteration_count = orders;
  params.progress_stream = &progress;
  params.execution_depth_limit = 20'000;
  std::cout << name << ": " << orders << " orders\n";
  return rl::simulate<Test>(params);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: " << argv[0] << " ORDERS\n";
    return 2;
  }
  const auto orders = static_cast<unsigned>(std::stoul(argv[1]));
  bool all = holds<HandOver>("hand-over", orders);
  all &= holds<Announcements>("announcements", orders);
  all &= holds<Allreduce>("allreduce", orders);
  return all ? 0 : 1;
}
