#include "topology/crowd.h"

#include <unordered_set>

namespace ddl {

std::optional<Crowd> find_crowd(const std::vector<Cpus>& cpus_of, std::size_t online) {
  std::optional<Crowd> worst;
  std::size_t most = 0;
  const std::unordered_set<Cpus> sets(cpus_of.begin(), cpus_of.end());
  for (const Cpus& cpus : sets) {
    const std::size_t count = cpus.count();
    if (count == 0 || count >= online) continue;
    Crowd crowd{{}, cpus};
    for (std::size_t rank = 0; rank < cpus_of.size(); ++rank) {
      const bool is_in = cpus_of[rank].any() && (cpus_of[rank] & ~cpus).none();
      if (is_in) crowd.ranks.push_back(static_cast<int>(rank));
    }
    if (crowd.ranks.size() <= count || crowd.ranks.size() - count <= most) continue;
    most = crowd.ranks.size() - count;
    worst = crowd;
  }
  return worst;
}

}  // namespace ddl
