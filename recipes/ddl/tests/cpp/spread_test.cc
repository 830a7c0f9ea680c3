// All-gather, reduce-scatter and broadcast plans of all hosts, carried out in one process.
#include "schedule/spread.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "machine.h"
#include "trees.h"

namespace ddl {
namespace {

// Cuts `count` elements into pieces of random owners.
Pieces draw_pieces(std::mt19937& random, int hosts, std::size_t count) {
  Pieces pieces;
  for (std::size_t begin = 0; begin < count;) {
    const std::size_t end = std::min(count, begin + random() % (2 + 2 * count / hosts));
    pieces.push_back({{begin, end}, static_cast<int>(random() % hosts)});
    begin = end;
  }
  return pieces;
}

// The usual case: a block for every host.
Pieces even_pieces(int hosts, std::size_t block) {
  Pieces pieces;
  for (int h = 0; h < hosts; ++h) pieces.push_back({{h * block, (h + 1) * block}, h});
  return pieces;
}

void expect_allgather(const Node& tree, int hosts, const Pieces& pieces, std::size_t count) {
  std::vector<Plan> plans;
  std::vector<Values> data;
  for (int h = 0; h < hosts; ++h) {
    plans.push_back(plan_allgather(tree, h, pieces, 1));
    data.emplace_back(count, -1);
    for (const Piece& piece : pieces) {
      if (piece.host != h) continue;
      for (std::size_t i = piece.span.begin; i < piece.span.end; ++i) data[h][i] = 7L * i + 1;
    }
  }
  Machine machine(std::move(plans), std::move(data));
  machine.run();
  for (int h = 0; h < hosts; ++h) {
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(machine.result(h)[i], 7L * i + 1);
  }
  EXPECT_EQ(machine.elements_sent(), static_cast<std::size_t>(hosts - 1) * count);
}

void expect_reduce_scatter(const Node& tree, int hosts, const Pieces& pieces, std::size_t count) {
  std::vector<Plan> plans;
  std::vector<Values> data;
  for (int h = 0; h < hosts; ++h) {
    plans.push_back(plan_reduce_scatter(tree, h, pieces, 1));
    Values& mine = data.emplace_back(count);
    std::iota(mine.begin(), mine.end(), h * 1000L);
  }
  Machine machine(std::move(plans), std::move(data));
  machine.run();
  for (const Piece& piece : pieces) {
    for (std::size_t i = piece.span.begin; i < piece.span.end; ++i) {
      const long expected = hosts * static_cast<long>(i) + 1000L * hosts * (hosts - 1) / 2;
      ASSERT_EQ(machine.result(piece.host)[i], expected) << "element " << i;
    }
  }
  EXPECT_EQ(machine.elements_sent(), static_cast<std::size_t>(hosts - 1) * count);
}

void expect_broadcast(const Node& tree, int hosts, int root, std::size_t count) {
  std::vector<Plan> plans;
  std::vector<Values> data;
  for (int h = 0; h < hosts; ++h) {
    plans.push_back(plan_broadcast(tree, h, root, count, 1));
    data.emplace_back(count, -1);
    if (h == root) std::iota(data[h].begin(), data[h].end(), 5L);
  }
  for (const Step& step : plans[root].steps) EXPECT_TRUE(step.recvs.empty());
  const Values expected = data[root];
  Machine machine(std::move(plans), std::move(data));
  machine.run();
  for (int h = 0; h < hosts; ++h) ASSERT_EQ(machine.result(h), expected) << "host " << h;
}

TEST(SpreadTest, AnyTreeAnyOwners) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    std::mt19937 random(seed);
    const auto [tree, hosts] = draw_tree(random, seed % 10 == 0, false);
    const std::size_t count = 1 + random() % 200;
    SCOPED_TRACE(describe_tree(tree) + "seed " + std::to_string(seed));
    const Pieces pieces = draw_pieces(random, hosts, count);
    expect_allgather(tree, hosts, pieces, count);
    expect_reduce_scatter(tree, hosts, pieces, count);
    const std::size_t block = 1 + random() % 5;
    expect_allgather(tree, hosts, even_pieces(hosts, block), hosts * block);
    expect_reduce_scatter(tree, hosts, even_pieces(hosts, block), hosts * block);
    expect_broadcast(tree, hosts, static_cast<int>(random() % hosts), count);
    if (HasFatalFailure()) return;
  }
}

Node two_racks() {
  return group(
      {group({host(0), host(1), host(2), host(3)}), group({host(4), host(5), host(6), host(7)})});
}

// Elements that `plans` send from hosts [0, 4) to the others.
std::size_t crossing(const std::vector<Plan>& plans) {
  std::size_t sum = 0;
  for (int h = 0; h < 4; ++h) {
    for (const Step& step : plans[h].steps) {
      for (const Transfer& part : step.sends) sum += part.host >= 4 ? part.span.count() : 0;
    }
  }
  return sum;
}

TEST(SpreadTest, DataEntersARackOnce) {
  const Pieces pieces = even_pieces(8, 512);
  std::vector<Plan> gather;
  std::vector<Plan> scatter;
  std::vector<Plan> broadcast;
  for (int h = 0; h < 8; ++h) {
    gather.push_back(plan_allgather(two_racks(), h, pieces, 64));
    scatter.push_back(plan_reduce_scatter(two_racks(), h, pieces, 64));
    broadcast.push_back(plan_broadcast(two_racks(), h, 1, 4096, 64));
  }
  EXPECT_EQ(crossing(gather), 2048U);
  EXPECT_EQ(crossing(scatter), 2048U);
  EXPECT_EQ(crossing(broadcast), 4096U);
  std::size_t from_root = 0;
  for (const Step& step : broadcast[1].steps) {
    for (const Transfer& part : step.sends) from_root += part.span.count();
  }
  EXPECT_LE(from_root, 2U * 4096U);
}

}  // namespace
}  // namespace ddl
