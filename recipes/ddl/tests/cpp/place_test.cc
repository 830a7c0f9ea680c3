#include "topology/place.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <fstream>

#include "base/error.h"

namespace ddl {
namespace {

const std::vector<std::string> kHosts{"a", "b", "c", "d"};

TEST(PlaceTest, HostsOfAGroupStandTogether) {
  const Node tree = tree_of_places(kHosts, {"row/r1", "row/r0", "row/r1", "row/r0"});
  EXPECT_EQ(describe_tree(tree), "row\n  r1\n    a\n    c\n  r0\n    b\n    d\n");
}

TEST(PlaceTest, DepthsMayDiffer) {
  const Node tree = tree_of_places(kHosts, {"x/y", "", "x", "x/y"});
  EXPECT_EQ(describe_tree(tree), "cluster\n  x\n    y\n      a\n      d\n    c\n  b\n");
}

TEST(PlaceTest, NoPlacesAreAFlatNetwork) {
  EXPECT_EQ(describe_tree(tree_of_places(kHosts, {"", "", "", ""})),
            describe_tree(flat_tree(kHosts)));
}

TEST(PlaceTest, AGroupMayBeCalledAsAHost) {
  const Node tree = tree_of_places(kHosts, {"", "a", "a", ""});
  EXPECT_EQ(describe_tree(tree), "cluster\n  a\n  a\n    b\n    c\n  d\n");
}

TEST(PlaceTest, WhatIsNoPathIsRefused) {
  const std::string longest(254, 'x');
  EXPECT_EQ(tree_of_places({"a", "b"}, {longest, longest}).name, longest);
  for (const std::string& place :
       {std::string("/"), std::string("a/"), std::string("/a"), std::string("a//b"),
        std::string("1/2/3/4/5/6/7/8/9"), longest + "x"}) {
    try {
      tree_of_places({"a", "node7"}, {"a", place});
      ADD_FAILURE() << place;
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("host node7 says that its place is '" + place + "'"), std::string::npos)
          << text;
    }
  }
}

class OwnPlaceTest : public testing::Test {
 protected:
  OwnPlaceTest() {
    for (const char* name : kNames) unsetenv(name);
    setenv("DDL_PLACE_FILE", "/nowhere", 1);
  }
  ~OwnPlaceTest() override {
    for (const char* name : kNames) unsetenv(name);
  }

  static constexpr const char* kNames[] = {"DDL_PLACE", "DDL_PLACE_FILE", "SLURM_TOPOLOGY_ADDR",
                                           "SLURM_TOPOLOGY_ADDR_PATTERN"};
};

TEST_F(OwnPlaceTest, NobodyTells) { EXPECT_EQ(own_place(), ""); }

TEST_F(OwnPlaceTest, SlurmTells) {
  setenv("SLURM_TOPOLOGY_ADDR", "s0.s4.node7", 1);
  setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node", 1);
  EXPECT_EQ(own_place(), "s0/s4");
  setenv("SLURM_TOPOLOGY_ADDR", "node7", 1);
  setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "node", 1);
  EXPECT_EQ(own_place(), "");
}

TEST_F(OwnPlaceTest, TheSitesFileComesBeforeSlurmAndTheVariableBeforeBoth) {
  setenv("SLURM_TOPOLOGY_ADDR", "s0.node7", 1);
  setenv("SLURM_TOPOLOGY_ADDR_PATTERN", "switch.node", 1);
  const std::string path = testing::TempDir() + "place";
  std::ofstream(path) << "row1/rack3 \nsecond line\n";
  setenv("DDL_PLACE_FILE", path.c_str(), 1);
  EXPECT_EQ(own_place(), "row1/rack3");
  setenv("DDL_PLACE", "other", 1);
  EXPECT_EQ(own_place(), "other");
  std::remove(path.c_str());
}

}  // namespace
}  // namespace ddl
