// Predictions: never below the bound, growing with the size, falling with the links' rates, and the
// basis of the choice of a schedule.
#include "schedule/cost.h"

#include <gtest/gtest.h>

#include <random>

#include "schedule/choose.h"
#include "trees.h"

namespace ddl {
namespace {

constexpr double kMB = 1e6;

Prediction predict(const Node& tree, int schedule, std::size_t nbytes, const Wire& wire = {}) {
  return predict_allreduce(arrange(tree, schedule), nbytes, Chunking(), wire);
}

// Links that cost something only by their rates.
Wire rates_only() {
  Wire wire;
  wire.latency = 1e-12;
  wire.overhead = 0;
  return wire;
}

Node widened(const Node& tree, double factor) {
  Node copy = tree;
  copy.up.bandwidth *= factor;
  for (Node& child : copy.children) child = widened(child, factor);
  return copy;
}

class DrawnTrees : public testing::TestWithParam<unsigned> {
 protected:
  void SetUp() override {
    std::mt19937 random(GetParam());
    tree_ = widened(draw_tree(random, GetParam() % 3 == 0, GetParam() % 2 == 0).tree, kMB);
  }
  Node tree_;
};

TEST_P(DrawnTrees, NoScheduleIsFasterThanTheBound) {
  if (tree_.is_host()) return;
  for (const int radix : useful_radixes(tree_)) {
    for (const std::size_t nbytes : {100U, 30000U, 1000000U, 50000000U}) {
      for (const Wire& wire : {Wire(), rates_only()}) {
        const Prediction found = predict(tree_, radix, nbytes, wire);
        EXPECT_GE(found.seconds, found.bound * (1 - 1e-9)) << describe_tree(tree_) << nbytes;
        EXPECT_GT(found.bound, 0);
      }
    }
  }
}

TEST_P(DrawnTrees, MoreDataTakesLonger) {
  if (tree_.is_host()) return;
  for (const int radix : useful_radixes(tree_)) {
    double before = 0;
    for (std::size_t nbytes = 1 << 10; nbytes <= 1 << 28; nbytes *= 2) {
      const double now = predict(tree_, radix, nbytes).seconds;
      EXPECT_GE(now, before) << describe_tree(tree_) << nbytes;
      before = now;
    }
  }
}

TEST_P(DrawnTrees, WiderLinksAreNeverSlower) {
  if (tree_.is_host()) return;
  for (const int radix : useful_radixes(tree_)) {
    const double now = predict(tree_, radix, 4 << 20).seconds;
    Wire wider;
    wider.bandwidth *= 2;
    EXPECT_LE(predict(widened(tree_, 2), radix, 4 << 20, wider).seconds, now);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, DrawnTrees, testing::Range(0U, 100U));

TEST(CostTest, TwoHostsTakeWhatTheLinkCarries) {
  const Prediction found = predict(flat(2, 10 * kMB), kDirect, 128 << 20, rates_only());
  EXPECT_NEAR(found.seconds, (128 << 20) / (10 * kMB), 0.01 * found.seconds);
  EXPECT_NEAR(found.bound, found.seconds, 0.01 * found.seconds);
  EXPECT_EQ(found.steps, 2);
  EXPECT_EQ(found.messages, 2U);
}

TEST(CostTest, TheNarrowUplinkIsTheLimit) {
  std::vector<Node> racks;
  for (int r = 0; r < 2; ++r) {
    Node rack = group({}, 5 * kMB);
    rack.name = "rack" + std::to_string(r);
    for (int h = 0; h < 4; ++h) rack.children.push_back(host(4 * r + h, 25 * kMB));
    racks.push_back(rack);
  }
  const Node tree = group(std::move(racks));
  const Prediction found = predict(tree, kDirect, 16 << 20, rates_only());
  EXPECT_EQ(found.limit, "link of rack0");
  // Each rack's data must leave it once.
  EXPECT_DOUBLE_EQ(found.bound, (16 << 20) / (5 * kMB));
  EXPECT_LT(found.seconds, 1.05 * found.bound);
}

TEST(CostTest, ASlowHostNeedsToSendItsDataOnce) {
  const Node tree = group({host(0, 8), host(1, 8), host(2, 8), host(3, 2)});
  EXPECT_DOUBLE_EQ(lower_bound(tree, 100, rates_only()), 50);
  const Node even = flat(4, 8);
  EXPECT_DOUBLE_EQ(lower_bound(even, 100, rates_only()), 2 * 3 * 100 / (4 * 8.0));
}

TEST(CostTest, FewChunksAreUnderWayBeforeANarrowPlace) {
  const auto racks = [](double uplink) {
    std::vector<Node> nodes;
    for (int r = 0; r < 2; ++r) {
      nodes.push_back(group({host(2 * r, 25 * kMB), host(2 * r + 1, 25 * kMB)}, uplink));
    }
    return group(std::move(nodes));
  };
  const auto window = [](const Node& tree, Wire wire = rates_only()) {
    return predict(tree, kDirect, 16 << 20, wire).window;
  };
  const std::size_t slots = Chunking().slots;
  EXPECT_EQ(window(racks(5 * kMB)), 3U);
  EXPECT_EQ(window(group({host(0, 8), host(1, 8), host(2, 8), host(3, 2)})), 3U);
  // A host's own link has its queue in the host, which waits.
  EXPECT_EQ(window(flat(8, 25 * kMB)), slots);
  EXPECT_EQ(window(racks(50 * kMB)), slots);
  EXPECT_EQ(window(flat(8)), slots);
  Wire far = rates_only();
  far.latency = 0.05;  // as long as 10 chunks take on the uplink
  EXPECT_EQ(window(racks(5 * kMB), far), slots);
}

TEST(CostTest, GoodputCountsAsANarrowerLink) {
  Wire half = rates_only();
  half.goodput = 0.5;
  const double whole = predict(flat(4, kMB), kDirect, 1 << 20, rates_only()).seconds;
  EXPECT_NEAR(predict(flat(4, kMB), kDirect, 1 << 20, half).seconds, 2 * whole, 1e-6 * whole);
}

TEST(CostTest, UnknownLinksAreSaidToBe) {
  EXPECT_FALSE(is_measured(flat(3)));
  EXPECT_FALSE(is_measured(group({host(0, 1), host(1)})));
  EXPECT_TRUE(is_measured(flat(3, 1)));
}

TEST(ChooseTest, FewHostsExchangeDirectlyAndManyInLevels) {
  EXPECT_EQ(choose_schedule(flat(2, 100 * kMB), 1 << 20, Chunking()), kDirect);
  const int schedule = choose_schedule(flat(256, 1e4 * kMB), 4096, Chunking());
  EXPECT_NE(schedule, kDirect);
  EXPECT_LT(predict(flat(256, 1e4 * kMB), schedule, 4096).seconds,
            predict(flat(256, 1e4 * kMB), kDirect, 4096).seconds);
}

TEST(ChooseTest, OnlyRadixesThatMakeADifferenceAreTried) {
  EXPECT_EQ(useful_radixes(flat(2)), (std::vector<int>{kDirect}));
  EXPECT_EQ(useful_radixes(flat(8)), (std::vector<int>{kDirect, 4, 2}));
  EXPECT_EQ(useful_radixes(flat(9)), (std::vector<int>{kDirect, 3, 2}));
}

TEST(ChooseTest, RingsAndTreesAreUsefulForThreeOrMore) {
  EXPECT_EQ(useful_exchanges(flat(2)), (std::vector<int>{}));
  EXPECT_EQ(useful_exchanges(flat(3)), (std::vector<int>{kTree, kRing}));
}

// What the model must say of them: a ring moves the bytes of a direct exchange in k - 1 times the
// steps; trees send every byte twice from an inner host, in log2(k) steps.
TEST(CostTest, RingsAndTrees) {
  const Wire wire = rates_only();
  const Prediction direct = predict(flat(8, kMB), kDirect, 1 << 20, wire);
  const Prediction ring = predict(flat(8, kMB), kRing, 1 << 20, wire);
  const Prediction tree = predict(flat(8, kMB), kTree, 1 << 20, wire);
  EXPECT_NEAR(ring.seconds, direct.seconds, 1e-3 * direct.seconds);
  EXPECT_EQ(direct.steps, 2);
  EXPECT_EQ(ring.steps, 14);
  EXPECT_EQ(tree.steps, 6);
  EXPECT_GT(tree.seconds, direct.seconds);
  EXPECT_LE(tree.messages, 4U);
}

TEST(ChooseTest, ShortLatenciesMeanCheapMessages) {
  Node tree = flat(8, 1e4 * kMB);
  EXPECT_EQ(usual_wire(tree).overhead, Wire().overhead);
  for (Node& host : tree.children) host.up.latency = 1e-6;
  EXPECT_EQ(usual_wire(tree).overhead, 1e-6);
}

TEST(ChooseTest, NothingElseIsMuchFaster) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    const Node tree = widened(draw_tree(random, seed % 2 == 0, true).tree, kMB);
    if (tree.is_host()) continue;
    for (const std::size_t nbytes : {4096U, 4194304U}) {
      const int chosen = choose_schedule(tree, nbytes, Chunking());
      const double time = predict(tree, chosen, nbytes).seconds;
      for (const int radix : useful_radixes(tree)) {
        EXPECT_GE(1.11 * predict(tree, radix, nbytes).seconds, time);
      }
      for (const int exchange : useful_exchanges(tree)) {
        EXPECT_GE(1.11 * predict(tree, exchange, nbytes).seconds, time);
      }
    }
  }
}

TEST(ChooseTest, ABigClusterIsChosenForAtOnce) {
  std::vector<Node> racks;
  for (int r = 0; r < 53; ++r) {
    std::vector<Node> hosts;
    for (int h = 0; h < 18; ++h) hosts.push_back(host(18 * r + h, 25000 * kMB));
    racks.push_back(group(std::move(hosts)));
  }
  const Node tree = group(std::move(racks));
  const int schedule = choose_schedule(tree, 1 << 20, Chunking());
  EXPECT_GT(predict(tree, schedule, 1 << 20).seconds, 0);
}

}  // namespace
}  // namespace ddl
