#include "schedule/choose.h"

#include <algorithm>

namespace ddl {
namespace {

// Fractions of time that the prediction cannot tell apart.
constexpr double kAlike = 0.02;

int largest_group(const Node& node) {
  std::size_t most = node.children.size();
  for (const Node& child : node.children) {
    most = std::max(most, static_cast<std::size_t>(largest_group(child)));
  }
  return static_cast<int>(most);
}

}  // namespace

std::vector<int> useful_radixes(const Node& tree) {
  std::vector<int> radixes{kDirect};
  const int most = largest_group(tree);
  for (const int radix : {16, 8, 4, 3, 2}) {
    if (radix < most) radixes.push_back(radix);
  }
  return radixes;
}

int choose_radix(const Node& tree, std::size_t nbytes, const Pipeline& pipeline, const Wire& wire) {
  int best = kDirect;
  double least = 0;
  for (const int radix : useful_radixes(tree)) {
    const double time =
        predict_allreduce(limit_groups(tree, radix), nbytes, pipeline, wire).seconds;
    if (radix != kDirect && time > least * (1 - kAlike)) continue;
    best = radix;
    least = time;
  }
  return best;
}

}  // namespace ddl
