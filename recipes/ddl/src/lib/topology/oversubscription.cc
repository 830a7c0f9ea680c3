#include "topology/oversubscription.h"

#include <unordered_set>

namespace ddl {

std::optional<Oversubscription> find_oversubscription(const std::vector<Cpus>& cpus_of,
                                                      std::size_t online) {
  std::optional<Oversubscription> worst;
  std::size_t most = 0;
  const std::unordered_set<Cpus> sets(cpus_of.begin(), cpus_of.end());
  for (const Cpus& cpus : sets) {
    const std::size_t count = cpus.count();
    if (count == 0 || count >= online) continue;
    Oversubscription shortage{{}, cpus};
    for (std::size_t rank = 0; rank < cpus_of.size(); ++rank) {
      const bool is_in = cpus_of[rank].any() && (cpus_of[rank] & ~cpus).none();
      if (is_in) shortage.ranks.push_back(static_cast<int>(rank));
    }
    if (shortage.ranks.size() <= count || shortage.ranks.size() - count <= most) continue;
    most = shortage.ranks.size() - count;
    worst = shortage;
  }
  return worst;
}

}  // namespace ddl
