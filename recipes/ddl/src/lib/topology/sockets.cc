#include "topology/sockets.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>

namespace ddl {

int own_socket(const std::string& root) {
  constexpr int kMaxCpus = 1 << 14;
  const std::size_t nbytes = CPU_ALLOC_SIZE(kMaxCpus);
  const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> cpus(
      CPU_ALLOC(kMaxCpus), [](cpu_set_t* set) { CPU_FREE(set); });
  if (!cpus || sched_getaffinity(0, nbytes, cpus.get()) != 0) return -1;
  int socket = -1;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (!CPU_ISSET_S(cpu, nbytes, cpus.get())) continue;
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/physical_package_id");
    int found = -1;
    if (!(file >> found) || found < 0 || (socket >= 0 && found != socket)) return -1;
    socket = found;
  }
  return socket;
}

std::vector<int> useful_sockets(const std::vector<int>& socket_of) {
  const std::size_t p = socket_of.size();
  std::map<int, int> number_of;
  std::map<int, std::size_t> ranks_on;
  std::vector<int> numbers;
  for (const int socket : socket_of) {
    numbers.push_back(
        number_of.try_emplace(socket, static_cast<int>(number_of.size())).first->second);
    ++ranks_on[socket];
  }
  // In units of S/p.
  std::size_t straight = 0;
  for (const auto& [socket, ranks] : ranks_on) straight += 2 * ranks * (p - ranks);
  const std::size_t by_socket = ranks_on.size() * (ranks_on.size() - 1) * p;
  if (ranks_on.count(-1) > 0 || by_socket >= straight) numbers.assign(p, 0);
  return numbers;
}

}  // namespace ddl
