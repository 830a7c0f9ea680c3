#include "comm/round.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace ddl {
namespace {

TEST(RoundTest, EveryHostHearsOnceOfEachOther) {
  for (int hosts = 1; hosts <= 40; ++hosts) {
    std::vector<std::multiset<int>> heard(hosts);
    for (int host = 0; host < hosts; ++host) heard[host] = {host};
    int rounds = 0;
    for (int distance = 1; distance < hosts; distance *= 2, ++rounds) {
      const std::vector<std::multiset<int>> before = heard;
      for (int me = 0; me < hosts; ++me) {
        const Round round(hosts, me, distance);
        const Round of_sender(hosts, round.from(), distance);
        ASSERT_EQ(of_sender.to(), me);
        ASSERT_EQ(round.is_last(), 2 * distance >= hosts);
        for (int whom = 0; whom < hosts; ++whom) {
          ASSERT_EQ(of_sender.is_sent(whom), round.is_received(whom));
          if (!round.is_received(whom)) continue;
          ASSERT_EQ(before[round.from()].count(whom), 1U);
          heard[me].insert(whom);
        }
      }
    }
    ASSERT_TRUE(1 << rounds >= hosts && 1 << rounds < 2 * hosts);
    for (const std::multiset<int>& of_host : heard) {
      ASSERT_EQ(of_host.size(), static_cast<std::size_t>(hosts));
      ASSERT_EQ(std::set<int>(of_host.begin(), of_host.end()).size(), of_host.size());
    }
  }
}

TEST(RoundTest, PairsKnowTheSameWhereHostsAreAPowerOfTwo) {
  for (const int hosts : {2, 4, 8, 16}) {
    for (int distance = 1; distance < hosts; distance *= 2) {
      for (int me = 0; me < hosts; ++me) {
        const Round round(hosts, me, distance);
        EXPECT_TRUE(round.is_pairwise());
        EXPECT_EQ(round.to(), round.from());
      }
    }
  }
  EXPECT_FALSE(Round(6, 0, 1).is_pairwise());
}

}  // namespace
}  // namespace ddl
