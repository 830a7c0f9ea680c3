#include "timeline/trace_text.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

TEST(TraceClockTest, OffsetsGoFromTheFirstToTheLast) {
  // Rank 0's clock begins at 1 s. This one is 500 s ahead of it, then falls back by 2 ms in 1000 s.
  constexpr std::int64_t kSecond = 1'000'000'000;
  const ClockSample first{501 * kSecond, -500 * kSecond, 30};
  const ClockSample last{1501 * kSecond, -500 * kSecond + 2'000'000, 7000};
  const TraceClock clock(first, last, kSecond);
  EXPECT_DOUBLE_EQ(clock.microseconds(501 * kSecond), 0);
  EXPECT_DOUBLE_EQ(clock.microseconds(1001 * kSecond), 500e6 + 1e3);
  EXPECT_DOUBLE_EQ(clock.microseconds(1501 * kSecond), 1000e6 + 2e3);
  EXPECT_DOUBLE_EQ(clock.error(), 7.0);
  // Measured once, as where a job ends by an error.
  EXPECT_DOUBLE_EQ(TraceClock(first, first, kSecond).microseconds(1501 * kSecond), 1000e6);
}

TEST(TraceTextTest, NamesAreQuoted) {
  TraceText text(0, "a\"b\\c\n", TraceClock({}, {}, 0));
  text.add_head(0, 0, {});
  const std::string all = text.take();
  EXPECT_NE(all.find(R"(a\"b\\c?)"), std::string::npos) << all;
  EXPECT_EQ(all.find("dropped events"), std::string::npos);
}

TEST(TraceTextTest, MessagesThatOverlapAreInRowsOfTheirOwn) {
  TraceText text(3, "h", TraceClock({}, {}, 0));
  text.add({{0, 2000, 4096, 1, true}, {1000, 3000, 4096, 1, true}, {2000, 4000, 4096, 1, true}});
  const std::string all = text.take();
  std::size_t rows = 0;
  for (std::size_t at = 0; (at = all.find("thread_name", at)) != std::string::npos; ++at) ++rows;
  EXPECT_EQ(rows, 2U) << all;
  EXPECT_NE(all.find(R"("tid": 0, "ts": 2.000, "dur": 2.000)"), std::string::npos) << all;
}

}  // namespace
}  // namespace ddl
