#include "schedule/choose.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>

namespace ddl {
namespace {

// Times by which a prediction cannot tell schedules apart (in the lab it is off by up to 10%).
constexpr double kAlike = 1.1;

int largest_group(const Node& node) {
  std::size_t most = node.children.size();
  for (const Node& child : node.children) {
    most = std::max(most, static_cast<std::size_t>(largest_group(child)));
  }
  return static_cast<int>(most);
}

}  // namespace

std::vector<int> useful_radixes(const Node& tree) {
  const int most = largest_group(tree);
  std::vector<int> radixes;
  std::set<std::string> seen;
  for (const int radix : {2, 3, 4, 8, 16}) {
    const bool is_new = seen.insert(describe_tree(arrange(tree, radix))).second;
    if (radix < most && is_new) radixes.push_back(radix);
  }
  radixes.push_back(kDirect);
  std::reverse(radixes.begin(), radixes.end());
  return radixes;
}

std::vector<int> useful_exchanges(const Node& tree) {
  return largest_group(tree) > 2 ? std::vector<int>{kTree, kRing} : std::vector<int>{};
}

int choose_schedule(const Node& tree, std::size_t nbytes, const Chunking& chunking) {
  const Wire wire = usual_wire(tree);
  const std::vector<int> radixes = useful_radixes(tree);
  std::vector<Prediction> found;
  double least = std::numeric_limits<double>::infinity();
  for (const int radix : radixes) {
    found.push_back(predict_allreduce(arrange(tree, radix), nbytes, chunking, wire));
    least = std::min(least, found.back().seconds);
  }
  std::size_t best = radixes.size();
  for (std::size_t i = 0; i < radixes.size(); ++i) {
    if (found[i].seconds > kAlike * least) continue;
    if (best == radixes.size() || found[i].messages < found[best].messages) best = i;
  }
  int chosen = radixes[best];
  double seconds = found[best].seconds;
  for (const int exchange : useful_exchanges(tree)) {
    const double now = predict_allreduce(arrange(tree, exchange), nbytes, chunking, wire).seconds;
    if (kAlike * now >= seconds) continue;
    chosen = exchange;
    seconds = now;
  }
  return chosen;
}

}  // namespace ddl
