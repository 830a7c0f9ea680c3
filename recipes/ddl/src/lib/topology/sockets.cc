#include "topology/sockets.h"

#include <algorithm>
#include <fstream>
#include <map>

#include "base/cpus.h"

namespace ddl {
namespace {

// Bytes/s: the rate of a rank that reads and writes elsewhere, as 2 ranks of 64 MiB do on the hosts
// of tests/bench/results, and the rate of one direction between two sockets, as two links of 20
// GB/s (UPI).
constexpr double kCore = 10e9;
constexpr double kLink = 40e9;

}  // namespace

int own_socket(const std::string& root) {
  const Cpus cpus = own_cpus();
  int socket = -1;
  for (std::size_t cpu = 0; cpu < cpus.size(); ++cpu) {
    if (!cpus[cpu]) continue;
    std::ifstream file(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                       "/topology/physical_package_id");
    int found = -1;
    if (!(file >> found) || found < 0 || (socket >= 0 && found != socket)) return -1;
    socket = found;
  }
  return socket;
}

std::vector<int> number_sockets(const std::vector<int>& socket_of) {
  std::map<int, int> number_of;
  std::vector<int> numbers;
  for (const int socket : socket_of) {
    const int next = static_cast<int>(number_of.size());
    numbers.push_back(number_of.try_emplace(socket, next).first->second);
  }
  return numbers;
}

bool pays_by_socket(const std::vector<int>& socket_of) {
  std::map<int, double> ranks_on;
  for (const int socket : socket_of) ++ranks_on[socket];
  if (ranks_on.count(-1) > 0) return false;
  const auto p = static_cast<double>(socket_of.size());
  const auto sockets = static_cast<double>(ranks_on.size());
  double fewest = p;
  double into_socket = 0;  // straight: of the inputs of the others, and of their results
  for (const auto& [socket, ranks] : ranks_on) {
    fewest = std::min(fewest, ranks);
    into_socket = std::max(into_socket, 2 * ranks * (p - ranks) / p);
  }
  // Per byte of the data. A rank copies its input in, all but its own slice; reads a slice of all
  // that are summed (by socket, then one of each socket's sum); and copies the result out.
  const double straight = std::max((3 - 1 / p) / kCore, into_socket / kLink);
  const double by_socket =
      std::max((3 - 1 / fewest + sockets / fewest) / kCore, (sockets - 1) / kLink);
  return by_socket < straight;
}

}  // namespace ddl
