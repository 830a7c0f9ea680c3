#include "topology/topology.h"

#include <gtest/gtest.h>

namespace ddl {
namespace {

// Six ranks on three hosts in the order that a launcher may give them: b a b c a b.
Topology interleaved() {
  return Topology({10, 4, 10, 7, 4, 10}, {"b", "a", "b", "c", "a", "b"}, {0, 1, 8, 2, 3, 0});
}

TEST(TopologyTest, HostsCountByTheirLowestRank) {
  const Topology topology = interleaved();
  ASSERT_EQ(topology.hosts().size(), 3U);
  EXPECT_EQ(topology.hosts()[0].name, "b");
  EXPECT_EQ(topology.hosts()[1].name, "a");
  EXPECT_EQ(topology.hosts()[2].name, "c");
  EXPECT_EQ(topology.hosts()[0].ranks, (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(topology.hosts()[0].sockets, (std::vector<int>{0, 8, 0}));
  EXPECT_EQ(topology.host_index(4), 1);
  EXPECT_EQ(topology.local_rank(5), 2);
  EXPECT_EQ(topology.min_local_size(), 1);
}

TEST(TopologyTest, ASubsetKeepsTheHostsOfItsRanks) {
  const Topology part = interleaved().subset({5, 4, 1, 0});
  ASSERT_EQ(part.size(), 4);
  ASSERT_EQ(part.hosts().size(), 2U);
  EXPECT_EQ(part.hosts()[0].name, "b");
  EXPECT_EQ(part.hosts()[0].ranks, (std::vector<int>{0, 3}));
  EXPECT_EQ(part.hosts()[1].ranks, (std::vector<int>{1, 2}));
  EXPECT_EQ(part.hosts()[1].sockets, (std::vector<int>{3, 1}));
  EXPECT_EQ(part.min_local_size(), 2);
}

TEST(TopologyTest, HostsOfOneNameCanDiffer) {
  const Topology topology({0, 1}, {"localhost", "localhost"}, {0, 0});
  EXPECT_EQ(topology.hosts().size(), 2U);
}

}  // namespace
}  // namespace ddl
