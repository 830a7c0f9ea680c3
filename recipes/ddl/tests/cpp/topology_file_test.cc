#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "topology/file.h"

namespace ddl {
namespace {

constexpr char kRacks[] = R"(name: lab
children:
- name: rack0
  bandwidth: 0.2
  latency: 50
  children:
  - {host: h0, bandwidth: 1}
  - {host: h1, bandwidth: 0.5}
- name: rack1
  bandwidth: 0.1
  children:
  - {host: "h[2-4]", bandwidth: 1}
)";

TEST(TopologyFileTest, ReadsRacksLinksAndRanges) {
  const Node tree = parse_topology(kRacks, "lab.yaml");
  ASSERT_EQ(tree.children.size(), 2U);
  EXPECT_EQ(tree.children[0].name, "rack0");
  EXPECT_DOUBLE_EQ(tree.children[0].up.bandwidth, 0.2e9 / 8);
  EXPECT_DOUBLE_EQ(tree.children[0].up.latency, 50e-6);
  EXPECT_DOUBLE_EQ(tree.children[0].children[1].up.bandwidth, 0.5e9 / 8);
  ASSERT_EQ(tree.children[1].children.size(), 3U);
  EXPECT_EQ(tree.children[1].children[2].name, "h4");
}

TEST(TopologyFileTest, HostsKeepTheirSockets) {
  const Node tree =
      assign_hosts(parse_topology("children: [{host: 'h[0-1]', sockets: 2}, {host: h2}]", "t.yaml"),
                   {"h2", "h1"}, "t.yaml");
  EXPECT_EQ(tree.children[0].sockets, 2);
  EXPECT_EQ(tree.children[1].sockets, 0);
}

TEST(TopologyFileTest, PlacesTheJobsHosts) {
  const Node tree =
      assign_hosts(parse_topology(kRacks, "lab.yaml"), {"h4.site.org", "h0", "h2"}, "lab.yaml");
  ASSERT_EQ(tree.children.size(), 2U);
  // The only host of its rack takes the rack's place, behind the narrower link.
  EXPECT_EQ(tree.children[0].host, 1);
  EXPECT_DOUBLE_EQ(tree.children[0].up.bandwidth, 0.2e9 / 8);
  ASSERT_EQ(tree.children[1].children.size(), 2U);
  EXPECT_EQ(tree.children[1].children[0].host, 2);
  EXPECT_EQ(tree.children[1].children[1].host, 0);
}

std::string message_of(const std::string& text) {
  try {
    assign_hosts(parse_topology(text, "t.yaml"), {"h0"}, "t.yaml");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERROR_ARGUMENT);
    return error.what();
  }
  return "no error";
}

TEST(TopologyFileTest, ErrorsNameTheLineAndTheFault) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "t.yaml: the file is empty"},
      {"- host: a", "t.yaml:1: expected a node"},
      {"children: [", "t.yaml:2: not YAML"},
      {"name: x\n", "t.yaml:1: neither 'host' nor 'children'"},
      {"children:\n- host: h0\n  children: []\n", "t.yaml:2: both 'host' and 'children'"},
      {"children:\n- host: h0\n  speed: 3\n", "t.yaml:3: unknown key 'speed'"},
      {"sockets: 2\nchildren:\n- host: h0\n", "t.yaml:1: 'sockets' belongs to a 'host'"},
      {"host: h0\nsockets: 0\n", "t.yaml:2: 'sockets' must be a whole number from 1 to 1024"},
      {"host: h0\nsockets: 2x\n", "not '2x'"},
      {"children:\n- host: h0\n  bandwidth: -3\n", "t.yaml:3: 'bandwidth' must be a number"},
      {"children:\n- host: h0\n  bandwidth: 3x\n", "'bandwidth' must be a number of Gbit/s"},
      {"children:\n- host: h0\n- host: h0\n", "t.yaml:3: host 'h0' stands in the file twice"},
      {"children:\n- host: h[0\n", "t.yaml:2: host 'h[0': a range is written"},
      {"children:\n- host: h[3-1]\n", "the range is empty"},
      {"children:\n- host: h0\n  host: h1\n", "t.yaml:3: 'host' is given twice"},
      {"children: 3\n", "t.yaml:1: 'children' must be a list"},
      {"host: h7\n", "t.yaml: host 'h0' of this job is not in the file"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(message_of(text).find(expected), std::string::npos) << text << message_of(text);
  }
}

// Whatever the bytes: a tree or one clear error, never a crash.
TEST(TopologyFileTest, SurvivesDamagedFiles) {
  const std::string good = kRacks;
  for (unsigned seed = 0; seed < 5000; ++seed) {
    std::mt19937 random(seed);
    std::string text = good;
    for (unsigned i = 0; i < 1 + random() % 8; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 9);
          break;
        default:
          text.insert(at, 1, ":-[]{}'\"&*#\n \t"[random() % 14]);
      }
      if (text.empty()) text = ":";
    }
    try {
      parse_topology(text, "t.yaml");
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("t.yaml:", 0), 0U) << error.what();
    }
  }
}

TEST(TreeTest, SizesGroupHostsInTheOrderOfTheirNames) {
  const Node tree = tree_of_sizes({"n10", "n1", "n9", "n2"}, {2});
  ASSERT_EQ(tree.children.size(), 2U);
  EXPECT_EQ(tree.children[0].children[0].host, 1);  // n1
  EXPECT_EQ(tree.children[0].children[1].host, 3);  // n2
  EXPECT_EQ(tree.children[1].children[0].host, 2);  // n9
  EXPECT_EQ(tree.children[1].children[1].host, 0);  // n10
}

}  // namespace
}  // namespace ddl
