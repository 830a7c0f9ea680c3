#include "topology/sockets.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace ddl {
namespace {

using Sockets = std::vector<int>;

// Ranks on sockets 0, 1, …: so many of them on each.
Sockets spread(const std::vector<int>& ranks_on) {
  Sockets sockets;
  for (std::size_t i = 0; i < ranks_on.size(); ++i) {
    sockets.insert(sockets.end(), ranks_on[i], static_cast<int>(i));
  }
  return sockets;
}

TEST(SocketsTest, AreNumberedByTheirFirstRank) {
  EXPECT_EQ(number_sockets({8, 0, 8, 3}), (Sockets{0, 1, 0, 2}));
  EXPECT_EQ(number_sockets({7}), (Sockets{0}));
}

TEST(SocketsTest, PayWhereTheLinkBetweenThemIsNarrow) {
  EXPECT_FALSE(pays_by_socket(spread({64})));
  EXPECT_FALSE(pays_by_socket(spread({1, 1})));
  EXPECT_FALSE(pays_by_socket(spread({3, 3})));
  EXPECT_FALSE(pays_by_socket(spread({12, 12})));  // 12 / 40 of the link, 3.1 / 10 of a core
  EXPECT_TRUE(pays_by_socket(spread({13, 13})));
  EXPECT_TRUE(pays_by_socket(spread({32, 32})));
}

// Whose ranks would have to do much more.
TEST(SocketsTest, DoNotPayWhereOneHasFewRanks) {
  EXPECT_FALSE(pays_by_socket(spread({63, 1})));
  EXPECT_FALSE(pays_by_socket(spread({28, 4})));
}

TEST(SocketsTest, DoNotPayWhereARankMayRunAnywhere) {
  Sockets sockets = spread({32, 32});
  sockets[5] = -1;
  EXPECT_FALSE(pays_by_socket(sockets));
}

class OwnSocketTest : public testing::Test {
 protected:
  OwnSocketTest() { sched_getaffinity(0, sizeof(before_), &before_); }
  ~OwnSocketTest() override {
    sched_setaffinity(0, sizeof(before_), &before_);
    std::filesystem::remove_all(root_);
  }

  // The CPUs that we may run on, at most two: the tests need no more.
  std::vector<int> cpus() const {
    std::vector<int> found;
    for (int cpu = 0; cpu < CPU_SETSIZE && found.size() < 2; ++cpu) {
      if (CPU_ISSET(cpu, &before_)) found.push_back(cpu);
    }
    return found;
  }
  static void run_on(const std::vector<int>& cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(cpu, &set);
    ASSERT_EQ(sched_setaffinity(0, sizeof(set), &set), 0);
  }
  void write(int cpu, const std::string& text) const {
    const std::string folder =
        root_ + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology";
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/physical_package_id") << text << "\n";
  }

  const std::string root_ = testing::TempDir() + "own_socket" + std::to_string(getpid());
  cpu_set_t before_;
};

TEST_F(OwnSocketTest, IsThatOfAllItsCpus) {
  run_on(cpus());
  for (const int cpu : cpus()) write(cpu, "8");
  EXPECT_EQ(own_socket(root_), 8);
}

TEST_F(OwnSocketTest, IsUnknownWhereThereAreTwo) {
  if (cpus().size() < 2) GTEST_SKIP() << "one CPU";
  write(cpus()[0], "0");
  write(cpus()[1], "1");
  run_on(cpus());
  EXPECT_EQ(own_socket(root_), -1);
  run_on({cpus()[1]});
  EXPECT_EQ(own_socket(root_), 1);
}

TEST_F(OwnSocketTest, IsUnknownWhereNobodyTells) {
  EXPECT_EQ(own_socket(root_), -1);
  for (const int cpu : cpus()) write(cpu, "-1");
  run_on(cpus());
  EXPECT_EQ(own_socket(root_), -1);
}

TEST_F(OwnSocketTest, LinuxTellsOfThisMachine) {
  run_on({cpus()[0]});
  std::ifstream file("/sys/devices/system/cpu/cpu" + std::to_string(cpus()[0]) +
                     "/topology/physical_package_id");
  int expected = -1;
  if (!(file >> expected)) GTEST_SKIP() << "this machine's /sys does not tell";
  EXPECT_EQ(own_socket(), expected);
}

}  // namespace
}  // namespace ddl
