#include "base/wait.h"

#include <gtest/gtest.h>

#include <thread>

namespace ddl {
namespace {

TEST(FlagTest, CountsOnPastTheLargestNumber) {
  Flag flag{};
  flag.post(0xfffffffe);
  EXPECT_TRUE(flag.reached(0xfffffffe));
  EXPECT_FALSE(flag.reached(0xffffffff));
  EXPECT_FALSE(flag.reached(1));
  flag.post(1);
  EXPECT_TRUE(flag.reached(0xffffffff));
  EXPECT_TRUE(flag.reached(1));
  EXPECT_FALSE(flag.reached(2));
}

TEST(FlagTest, GivesTheCallerTurnsWhileNothingComes) {
  Flag flag{};
  EXPECT_FALSE(flag.wait_a_while(1, SpinBudget(1)));
  EXPECT_EQ(flag.sleepers.load(), 0U);
}

// Hand-overs with the waiter asleep, awake and in between.
TEST(FlagTest, EveryHandOverArrives) {
  Flag ping{};
  Flag pong{};
  constexpr std::uint32_t kRounds = 2000;
  std::thread other([&] {
    const SpinBudget spins(1000);
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
      while (!ping.wait_a_while(i, spins)) {
      }
      pong.post(i);
    }
  });
  const SpinBudget spins(1000);
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    ping.post(i);
    while (!pong.wait_a_while(i, spins)) {
    }
  }
  other.join();
  EXPECT_TRUE(pong.reached(kRounds));
}

}  // namespace
}  // namespace ddl
