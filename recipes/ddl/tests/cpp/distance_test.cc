#include "transport/distance.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/wait.h"

namespace ddl {
namespace {

// What the second of two ranks does for the n-th look, but `late` for each throw.
void throw_back(std::atomic<std::uint32_t>* ball, std::uint32_t nth, Clock::duration late) {
  const Clock::time_point start = Clock::now();
  for (std::uint32_t i = 1; i <= DistanceWatch::kRounds; ++i) {
    const std::uint32_t wanted = nth * DistanceWatch::kLookThrows + 2 * i;
    while (ball->load() != wanted) {
      if (Clock::now() - start > std::chrono::seconds{1}) return;  // the first one gave up
    }
    const Clock::time_point come = Clock::now();
    while (Clock::now() - come < late) continue;
    ball->store(wanted + 1);
  }
}

TEST(Distance, IsFarWhenTheBallComesBackLate) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "it takes two processors";
  SharedDistance shared{};
  DistanceWatch first(0, 2);
  // Another load may disturb a look, and a sanitizer's many.
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds{60};
  for (std::uint32_t nth = 0; !shared.is_far && Clock::now() < deadline; ++nth) {
    std::thread second(throw_back, &shared.ball, nth, std::chrono::nanoseconds{500});
    std::this_thread::sleep_for(std::chrono::milliseconds{5});  // it has started
    first.look(&shared, std::size_t{65} << 20);
    second.join();
  }
  EXPECT_TRUE(shared.is_far);
}

TEST(Distance, StaysAsItWasWhenNobodyThrowsBack) {
  SharedDistance shared{};
  DistanceWatch(0, 2).look(&shared, 1);
  EXPECT_FALSE(shared.is_far);
}

TEST(Distance, IsLookedAtNowAndThen) {
  SharedDistance shared{};
  DistanceWatch first(0, 2);
  int looks = 0;
  for (int call = 0; call < 128; ++call) {
    const std::uint32_t before = shared.ball;
    first.look(&shared, 1);
    looks += shared.ball != before ? 1 : 0;
  }
  EXPECT_EQ(looks, 2);  // of 128 calls, 64 MiB apart by what each counts for
}

TEST(Distance, ConcernsTwoRanksAtATime) {
  SharedDistance shared{};
  DistanceWatch third(2, 3);  // of three; the first look is of the second
  third.look(&shared, 1);
  EXPECT_EQ(shared.ball, 0u);
}

TEST(Distance, OfOneRankIsNone) {
  SharedDistance shared{};
  DistanceWatch(0, 1).look(&shared, 1);
  EXPECT_EQ(shared.ball, 0u);
}

}  // namespace
}  // namespace ddl
