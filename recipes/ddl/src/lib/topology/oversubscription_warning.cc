#include "topology/oversubscription_warning.h"

#include <unistd.h>

#include <climits>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "topology/oversubscription.h"

namespace ddl {
namespace {

// "1, 2 and 3", or the first of many.
template <typename Number>
std::string list(const std::vector<Number>& numbers) {
  constexpr std::size_t kMost = 8;
  std::string text;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i == kMost) return text + " and " + std::to_string(numbers.size() - kMost) + " more";
    if (i > 0) text += i + 1 == numbers.size() ? " and " : ", ";
    text += std::to_string(numbers[i]);
  }
  return text;
}

// The first rank of a host has each one's processors; the others have nothing.
std::vector<Cpus> gather_cpus(MpiTransport& transport, const Host& host, bool is_first) {
  static_assert(std::is_trivially_copyable_v<Cpus>, "it is sent as it lies");
  std::vector<Cpus> cpus_of(is_first ? host.ranks.size() : 1);
  cpus_of[0] = own_cpus();
  Batch batch(transport);
  if (!is_first) batch.send(&cpus_of[0], sizeof(Cpus), host.ranks[0], tags::kSetup.first);
  for (std::size_t i = 1; i < cpus_of.size(); ++i) {
    batch.recv(&cpus_of[i], sizeof(Cpus), host.ranks[i], tags::kSetup.first);
  }
  batch.wait();
  if (!is_first) cpus_of.clear();
  return cpus_of;
}

void say(const Host& host, const Oversubscription& shortage, long online) {
  std::vector<int> ranks;
  for (const int local : shortage.ranks) ranks.push_back(host.ranks[local]);
  std::vector<std::size_t> cpus;
  for (std::size_t cpu = 0; cpu < shortage.cpus.size(); ++cpu) {
    if (shortage.cpus[cpu]) cpus.push_back(cpu);
  }
  std::fprintf(stderr,
               "[ddl] warning: ranks %s on host %s may run on %zu of its %ld processors only "
               "(%s), and wait for each other. Give each its own: `ddlrun` does, where the job has "
               "as many; `srun` does by --cpus-per-task and --cpu-bind=cores; under torchrun, the "
               "one task of a host needs all its processors\n",
               list(ranks).c_str(), host.name.c_str(), cpus.size(), online, list(cpus).c_str());
}

}  // namespace

void warn_of_oversubscription(MpiTransport& transport, const Topology& topology) {
  const int rank = transport.rank();
  const Host& host = topology.host_of(rank);
  const long online = sysconf(_SC_NPROCESSORS_ONLN);
  const std::vector<Cpus> cpus_of = gather_cpus(transport, host, rank == host.ranks[0]);
  const std::optional<Oversubscription> shortage =
      find_oversubscription(cpus_of, online > 0 ? online : 0);
  long first = shortage ? rank : LONG_MAX;
  Batch batch(transport);
  batch.all_min(&first, 1);
  batch.wait();
  if (shortage && first == rank) say(host, *shortage, online);
}

}  // namespace ddl
