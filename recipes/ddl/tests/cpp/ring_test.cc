#include "timeline/ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace ddl {
namespace {

TEST(RingTest, KeepsTheLatestInTheirOrder) {
  for (const int pushed : {0, 1, 4, 5, 6, 8, 11}) {
    Ring<int> ring(4);
    for (int i = 0; i < pushed; ++i) ring.push(i);
    std::vector<int> latest;
    for (int i = std::max(0, pushed - 4); i < pushed; ++i) latest.push_back(i);
    EXPECT_EQ(ring.items(), latest) << pushed;
    EXPECT_EQ(ring.num_dropped(), static_cast<std::uint64_t>(std::max(0, pushed - 4)));
  }
}

}  // namespace
}  // namespace ddl
