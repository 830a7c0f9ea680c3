#include "topology/crowd.h"

#include <sched.h>

#include <memory>
#include <unordered_set>

namespace ddl {

Cpus own_cpus() {
  Cpus found;
  const std::size_t nbytes = CPU_ALLOC_SIZE(found.size());
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set(
      CPU_ALLOC(found.size()), [](cpu_set_t* cpus) { CPU_FREE(cpus); });
  if (!set || sched_getaffinity(0, nbytes, set.get()) != 0) return found;
  for (std::size_t cpu = 0; cpu < found.size(); ++cpu) {
    if (CPU_ISSET_S(cpu, nbytes, set.get())) found.set(cpu);
  }
  return found;
}

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
