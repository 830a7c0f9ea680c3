#include "topology/oversubscription.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace ddl {
namespace {

Cpus cpus(const std::vector<std::size_t>& numbers) {
  Cpus found;
  for (const std::size_t number : numbers) found.set(number);
  return found;
}

TEST(OversubscriptionTest, IsOfRanksOnOneProcessorOfSeveral) {
  const auto shortage = find_oversubscription({cpus({3}), cpus({3}), cpus({4})}, 8);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->ranks, (std::vector<int>{0, 1}));
  EXPECT_EQ(shortage->cpus, cpus({3}));
}

TEST(OversubscriptionTest, MayHaveSeveralProcessorsThatAreTooFew) {
  const auto shortage =
      find_oversubscription({cpus({0, 1}), cpus({0}), cpus({0, 1}), cpus({5000})}, 8);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->ranks, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(shortage->cpus, cpus({0, 1}));
}

TEST(OversubscriptionTest, TheWorstIsFound) {
  const auto shortage =
      find_oversubscription({cpus({0}), cpus({0}), cpus({1}), cpus({1}), cpus({1})}, 8);
  ASSERT_TRUE(shortage);
  EXPECT_EQ(shortage->ranks, (std::vector<int>{2, 3, 4}));
}

TEST(OversubscriptionTest, IsNoneWhereEachHasOne) {
  EXPECT_FALSE(find_oversubscription({}, 8));
  EXPECT_FALSE(find_oversubscription({cpus({7})}, 8));
  EXPECT_FALSE(find_oversubscription({cpus({0}), cpus({1}), cpus({0, 1, 2})}, 8));
  EXPECT_FALSE(find_oversubscription({cpus({0, 1}), cpus({0, 1})}, 8));
}

TEST(OversubscriptionTest, IsNoneWhereThereAreNoMoreProcessorsOrNobodyTells) {
  EXPECT_FALSE(find_oversubscription({cpus({0, 1}), cpus({0, 1}), cpus({0, 1})}, 2));
  EXPECT_FALSE(find_oversubscription({cpus({0}), cpus({0})}, 0));
  EXPECT_FALSE(find_oversubscription({Cpus(), Cpus()}, 8));
}

TEST(OversubscriptionTest, KnowsTheProcessorsOfThisThread) {
  const std::size_t count = own_cpus().count();
  EXPECT_GE(count, 1U);
  EXPECT_LE(count, static_cast<std::size_t>(sysconf(_SC_NPROCESSORS_ONLN)));
}

}  // namespace
}  // namespace ddl
