#include "base/cpus.h"

#include <sched.h>

#include <memory>

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

}  // namespace ddl
