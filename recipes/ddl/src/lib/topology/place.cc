#include "topology/place.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "base/error.h"

namespace ddl {
namespace {

constexpr std::size_t kMaxGroups = 8;

std::string first_line(const std::string& path) {
  std::string line;
  std::ifstream file(path);
  std::getline(file, line);
  const auto end = line.find_last_not_of(" \t\r");
  return end == std::string::npos ? "" : line.substr(0, end + 1);
}

// "s0.s4.node7" as "s0/s4": the pattern gives the meaning of each word, and the last is the node.
std::string slurm_place() {
  const char* address = std::getenv("SLURM_TOPOLOGY_ADDR");
  const char* pattern = std::getenv("SLURM_TOPOLOGY_ADDR_PATTERN");
  if (address == nullptr || pattern == nullptr) return "";
  const std::string words = pattern;
  std::string place = address;
  const auto node = place.rfind('.');
  if (node == std::string::npos || words.size() < 5 || words.substr(words.size() - 5) != ".node") {
    return "";  // a flat network
  }
  place.resize(node);
  std::replace(place.begin(), place.end(), '.', '/');
  return place;
}

std::vector<std::string> groups_of(const std::string& place, const std::string& host) {
  if (place.empty()) return {};
  std::vector<std::string> groups;
  std::istringstream words(place);
  for (std::string word; std::getline(words, word, '/');) groups.push_back(word);
  const bool is_path = place.size() < kMaxPlace && place.back() != '/' &&
                       groups.size() <= kMaxGroups &&
                       std::count(groups.begin(), groups.end(), "") == 0;
  if (is_path) return groups;
  fail(DDL_ERROR_ARGUMENT, "host ", host, " says that its place is '", place,
       "' (DDL_PLACE or /etc/ddl/place); a place is the names of at most ", kMaxGroups,
       " groups, the widest first, with one '/' between them, as row1/rack3; not more than ",
       kMaxPlace - 1, " characters");
}

Node& child_named(Node* node, const std::string& name) {
  for (Node& child : node->children) {
    if (!child.is_host() && child.name == name) return child;
  }
  node->children.push_back({name, {}, -1, {}});
  return node->children.back();
}

}  // namespace

std::string own_place() {
  if (const char* place = std::getenv("DDL_PLACE")) return place;
  const char* file = std::getenv("DDL_PLACE_FILE");
  const std::string place = first_line(file == nullptr ? "/etc/ddl/place" : file);
  return place.empty() ? slurm_place() : place;
}

Node tree_of_places(const std::vector<std::string>& host_names,
                    const std::vector<std::string>& places) {
  Node root{"cluster", {}, -1, {}};
  for (std::size_t i = 0; i < host_names.size(); ++i) {
    Node* group = &root;
    for (const std::string& name : groups_of(places[i], host_names[i])) {
      group = &child_named(group, name);
    }
    group->children.push_back({host_names[i], {}, static_cast<int>(i), {}});
  }
  return without_groups_of_one(root);
}

}  // namespace ddl
