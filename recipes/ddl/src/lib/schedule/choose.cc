#include "schedule/choose.h"

#include <algorithm>
#include <limits>

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
  std::vector<int> radixes{kDirect};
  const int most = largest_group(tree);
  for (const int radix : {16, 8, 4, 3, 2}) {
    if (radix < most) radixes.push_back(radix);
  }
  return radixes;
}

int choose_radix(const Node& tree, std::size_t nbytes, const Pipeline& pipeline) {
  const Wire wire = usual_wire(tree);
  const std::vector<int> radixes = useful_radixes(tree);
  std::vector<Prediction> found;
  double least = std::numeric_limits<double>::infinity();
  for (const int radix : radixes) {
    found.push_back(predict_allreduce(limit_groups(tree, radix), nbytes, pipeline, wire));
    least = std::min(least, found.back().seconds);
  }
  std::size_t best = radixes.size();
  for (std::size_t i = 0; i < radixes.size(); ++i) {
    if (found[i].seconds > kAlike * least) continue;
    if (best == radixes.size() || found[i].messages < found[best].messages) best = i;
  }
  return radixes[best];
}

}  // namespace ddl
