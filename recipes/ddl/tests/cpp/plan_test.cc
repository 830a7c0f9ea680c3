// Plans of all hosts carried out in one process: every message has a partner, every sum is right.
#include "schedule/plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "machine.h"
#include "schedule/arrange.h"
#include "trees.h"

namespace ddl {
namespace {

void expect_allreduce(const Node& tree, int hosts, std::size_t count, std::size_t unit) {
  std::vector<Plan> plans;
  std::vector<Values> data;
  for (int h = 0; h < hosts; ++h) {
    plans.push_back(plan_allreduce(tree, h, count, unit));
    Values& mine = data.emplace_back(count);
    std::iota(mine.begin(), mine.end(), h * 1000L);
  }
  Machine machine(std::move(plans), std::move(data), hosts > 1);
  machine.run();
  for (int h = 0; h < hosts; ++h) {
    for (std::size_t i = 0; i < count; ++i) {
      const long expected = hosts * static_cast<long>(i) + 1000L * hosts * (hosts - 1) / 2;
      ASSERT_EQ(machine.result(h)[i], expected) << "host " << h << ", element " << i;
    }
  }
  // Each element is sent hosts - 1 times to be summed and as often as a result: never more.
  EXPECT_EQ(machine.elements_sent(), 2 * static_cast<std::size_t>(hosts - 1) * count);
}

// Runs the steps that reduce only: every element's sum is where owners_of_sums says.
void expect_owners(const Node& tree, int hosts, std::size_t count, std::size_t unit) {
  std::vector<Plan> plans;
  std::vector<Values> data;
  for (int h = 0; h < hosts; ++h) {
    Plan& plan = plans.emplace_back(plan_allreduce(tree, h, count, unit));
    plan.steps.resize(plan.reducing);
    Values& mine = data.emplace_back(count);
    std::iota(mine.begin(), mine.end(), h * 1000L);
  }
  Machine machine(std::move(plans), std::move(data), hosts > 1);
  machine.run();
  std::size_t at = 0;
  for (const Piece& piece : owners_of_sums(tree, count, unit)) {
    ASSERT_EQ(piece.span.begin, at);
    for (; at < piece.span.end; ++at) {
      const long expected = hosts * static_cast<long>(at) + 1000L * hosts * (hosts - 1) / 2;
      ASSERT_EQ(machine.result(piece.host)[at], expected) << "element " << at;
    }
  }
  EXPECT_EQ(at, count);
}

TEST(PlanTest, AnyTreeCountAndScheduleSumsExactlyOnce) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const DrawnTree drawn = draw_tree(random, seed % 10 == 0, false);
    const std::vector<int> others = {kDirect, kRing, kTree};
    const int schedule = seed % 2 == 0 ? others[seed / 2 % 3] : 2 + static_cast<int>(random() % 4);
    const Node tree = arrange(drawn.tree, schedule);
    const std::size_t unit = 1 + random() % 3;
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{random() % 200}}) {
      SCOPED_TRACE(describe_tree(tree) + "count " + std::to_string(count));
      expect_allreduce(tree, drawn.hosts, count, unit);
      expect_owners(tree, drawn.hosts, count, unit);
      if (HasFatalFailure()) return;
    }
  }
}

// What this host of a flat group does in each step of the way up: messages sent, parts added.
std::vector<std::pair<std::size_t, std::size_t>> way_up(int hosts, int schedule, int host) {
  const Plan plan = plan_allreduce(arrange(flat(hosts), schedule), host, 1600, 1);
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < plan.reducing; ++i) {
    std::size_t parts = 0;
    for (const Reduction& reduction : plan.steps[i].reductions) parts += reduction.from.size() - 1;
    found.emplace_back(plan.steps[i].sends.size(), parts);
  }
  return found;
}

TEST(PlanTest, ARingHasOneMessageToTheRightInEveryRound) {
  const std::vector<std::pair<std::size_t, std::size_t>> once(6, {1, 1});
  for (int h = 0; h < 7; ++h) {
    EXPECT_EQ(way_up(7, kRing, h), once);
    const Plan plan = plan_allreduce(arrange(flat(7), kRing), h, 1600, 1);
    for (std::size_t i = 0; i < plan.steps.size(); ++i) {
      EXPECT_EQ(plan.steps[i].sends[0].host, (h + (i < plan.reducing ? 1 : 6)) % 7);
    }
  }
}

TEST(PlanTest, NobodyAddsMoreThanTwoPartsInBothTreesTogether) {
  for (const int hosts : {3, 4, 5, 8, 12, 17}) {
    const int second_root = hosts % 2 == 0 ? hosts - 1 : 1;
    for (int h = 0; h < hosts; ++h) {
      std::size_t parts = 0;
      std::size_t sent = 0;
      const auto rounds = way_up(hosts, kTree, h);
      EXPECT_EQ(rounds.size(), static_cast<std::size_t>(std::ceil(std::log2(hosts))));
      for (const auto& [sends, adds] : rounds) {
        sent += sends;
        parts += adds;
      }
      EXPECT_LE(parts, 2U) << h << " of " << hosts;
      EXPECT_EQ(sent, h == 0 || h == second_root ? 1U : 2U) << h << " of " << hosts;
    }
  }
}

TEST(PlanTest, HalvingSendsOneMessageInEachOfLogSteps) {
  const Node tree = arrange(flat(16), 2);
  for (int h = 0; h < 16; ++h) {
    const Plan plan = plan_allreduce(tree, h, 1600, 1);
    ASSERT_EQ(plan.steps.size(), 8U);
    std::size_t sent = 0;
    for (const Step& step : plan.steps) {
      ASSERT_EQ(step.sends.size(), 1U);
      sent += step.sends[0].span.count();
    }
    EXPECT_EQ(sent, 2 * 1500U);
  }
}

TEST(ArrangeTest, GroupsAreSplitEvenly) {
  const Node tree = arrange(flat(18), 3);
  ASSERT_EQ(tree.children.size(), 3U);
  for (const Node& part : tree.children) {
    ASSERT_EQ(part.children.size(), 3U);
    for (const Node& pair : part.children) EXPECT_EQ(pair.num_hosts(), 2);
  }
  EXPECT_EQ(describe_tree(arrange(flat(18), 4)), describe_tree(arrange(flat(18), 3)));
  EXPECT_EQ(arrange(flat(19), 4).children.size(), 4U);
  EXPECT_EQ(arrange(flat(18), 18).children.size(), 18U);
  EXPECT_EQ(arrange(flat(18), kDirect).children.size(), 18U);
}

TEST(ArrangeTest, PlansHaveTagsForAllLevels) {
  Node deep = flat(4);
  const int deepest = kMaxTags / 2 - 2;  // two levels for the four hosts, two tags for a level
  for (int i = 0; i < deepest; ++i) deep = group({deep, host(4 + i)});
  EXPECT_NE(describe_tree(arrange(deep, 2)), describe_tree(deep));
  deep = group({deep, host(4 + deepest)});
  EXPECT_EQ(describe_tree(arrange(deep, 2)), describe_tree(deep));
  const int longest = kMaxTags / 2 + 1;  // a round less than hosts
  EXPECT_EQ(arrange(flat(longest), kRing).exchange, Exchange::kRing);
  EXPECT_EQ(arrange(flat(longest + 1), kRing).exchange, Exchange::kDirect);
}

// Elements that cross the border of hosts [0, inside).
std::size_t crossing(const Node& tree, int hosts, int inside, std::size_t count) {
  std::size_t sum = 0;
  for (int h = 0; h < inside; ++h) {
    for (const Step& step : plan_allreduce(tree, h, count, 1).steps) {
      for (const Transfer& part : step.sends) sum += part.host >= inside ? part.span.count() : 0;
    }
  }
  EXPECT_LE(inside, hosts);
  return sum;
}

TEST(PlanTest, TheDataLeavesARackOnce) {
  const Node even = group(
      {group({host(0), host(1), host(2), host(3)}), group({host(4), host(5), host(6), host(7)})});
  EXPECT_EQ(crossing(even, 8, 4, 8192), 8192U);
  const Node ragged =
      group({group({host(0), host(1), host(2), host(3), host(4)}), group({host(5), host(6)})});
  EXPECT_EQ(crossing(ragged, 7, 5, 7000), 7000U);
}

TEST(PlanTest, ASlowHostReducesNothing) {
  const Node tree = group({host(0, 500), host(1, 500), host(2, 500), host(3, 125)});
  const Plan plan = plan_allreduce(tree, 3, 3000, 1);
  EXPECT_TRUE(plan.steps[0].reductions.empty());
  std::size_t sent = 0;
  for (const Step& step : plan.steps) {
    for (const Transfer& part : step.sends) sent += part.span.count();
  }
  EXPECT_EQ(sent, 3000U);
}

TEST(PlanTest, OneHostHasNothingToDo) {
  EXPECT_TRUE(plan_allreduce(host(0), 0, 100, 1).steps.empty());
}

}  // namespace
}  // namespace ddl
