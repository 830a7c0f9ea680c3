// ThreadSanitizer runs these, too (test_sanitizers.py): threads stand for the ranks of a host.
#include "transport/shared_words.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "base/wait.h"

namespace ddl {
namespace {

// As the memory that ranks share: zero, and no constructor runs.
template <class T>
class Shared {
 public:
  T& operator*() { return *reinterpret_cast<T*>(bytes_); }
  T* operator->() { return reinterpret_cast<T*>(bytes_); }

 private:
  alignas(T) std::byte bytes_[sizeof(T)]{};
};

TEST(SharedProcess, IsNoneAtFirst) {
  Shared<SharedProcess> shared;
  EXPECT_EQ(shared->get().word(), 0U);
  EXPECT_FALSE(shared->get().has_ended());
}

TEST(SharedProcess, LivesUntilItEndsThoughNobodyCollectsIt) {
  EXPECT_FALSE(ProcessName::own().has_ended());
  EXPECT_EQ(ProcessName::own().pid(), getpid());
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const ProcessName own = ProcessName::own();
    const ssize_t written = write(ends[1], &own, sizeof(own));
    _exit(written == sizeof(own) ? 0 : 1);
  }
  ProcessName name;
  ASSERT_EQ(read(ends[0], &name, sizeof(name)), static_cast<ssize_t>(sizeof(name)));
  EXPECT_EQ(name.pid(), child);
  siginfo_t info;
  ASSERT_EQ(waitid(P_PID, child, &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(name.has_ended());
  waitpid(child, nullptr, 0);
  EXPECT_TRUE(name.has_ended());
  close(ends[0]);
  close(ends[1]);
}

TEST(SharedProcess, AnotherOneWithItsNumberIsAnotherProcess) {
  constexpr std::uint64_t kTick = std::uint64_t{1} << 22;
  const ProcessName own = ProcessName::own();
  const ProcessName before(own.word() - kTick);
  EXPECT_EQ(before.pid(), own.pid());
  EXPECT_TRUE(before.has_ended());
}

// A number and a time that were read apart would name a process that never was.
TEST(SharedProcess, IsReadAsAWhole) {
  constexpr int kRounds = 200;
  const ProcessName own = ProcessName::own();
  for (int i = 0; i < kRounds; ++i) {
    Shared<SharedProcess> shared;
    std::atomic<bool> is_there{false};
    std::thread reader([&] {
      is_there = true;
      ProcessName seen;
      while ((seen = shared->get()).word() == 0) std::this_thread::yield();
      EXPECT_EQ(seen.word(), own.word());
    });
    while (!is_there) std::this_thread::yield();
    shared->set(own);
    reader.join();
  }
}

TEST(SharedFailure, TheFirstOneStaysAndIsReadAsAWhole) {
  constexpr int kRounds = 300;
  constexpr int kRanks = 3;
  for (int i = 0; i < kRounds; ++i) {
    Shared<SharedFailure> shared;
    EXPECT_FALSE(shared->is_set());
    std::vector<std::thread> ranks;
    for (int rank = 1; rank <= kRanks; ++rank) {
      ranks.emplace_back([&, rank] {
        shared->set(rank, std::string(100 * rank, static_cast<char>('0' + rank)).c_str());
        while (!shared->is_set()) std::this_thread::yield();
        const int first = shared->code();
        EXPECT_EQ(shared->text(), std::string(100 * first, static_cast<char>('0' + first)));
      });
    }
    for (std::thread& rank : ranks) rank.join();
  }
}

TEST(SharedFailure, CutsALongText) {
  Shared<SharedFailure> shared;
  shared->set(7, std::string(5000, 'x').c_str());
  EXPECT_EQ(shared->text(), std::string(kMaxErrorText - 1, 'x'));
}

// The hand-over of every collective: each rank reads what the others brought to this call.
TEST(SharedMail, IsReadBeforeItIsWrittenAgain) {
  constexpr std::uint32_t kCalls = 5000;
  constexpr int kRanks = 3;
  struct Rank {
    Flag arrived;
    SharedMail mails[2];
  };
  Shared<Rank> shared[kRanks];
  std::vector<std::thread> ranks;
  for (int me = 0; me < kRanks; ++me) {
    ranks.emplace_back([&, me] {
      const SpinBudget spins(kRanks);
      for (std::uint32_t call = 1; call <= kCalls; ++call) {
        SharedMail& own = shared[me]->mails[call & 1];
        Call mine;
        mine.count = call * kRanks + me;
        own.tiny()[0] = static_cast<std::byte>(call + me);
        own.write(mine, call);
        shared[me]->arrived.post(call);
        for (int rank = 0; rank < kRanks; ++rank) {
          SharedMail& theirs = shared[rank]->mails[call & 1];
          while (!shared[rank]->arrived.wait_a_while(call, spins)) continue;
          ASSERT_TRUE(theirs.is_of(call));
          ASSERT_EQ(theirs.call().count, call * kRanks + rank);
          ASSERT_EQ(theirs.tiny()[0], static_cast<std::byte>(call + rank));
        }
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace ddl
