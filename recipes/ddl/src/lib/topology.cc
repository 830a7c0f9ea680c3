#include "topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

#include "transport/mpi.h"

namespace ddl {
namespace {

// What makes two ranks neighbours: the host's name, the same boot of the same kernel (two machines
// may be called "localhost") and MPI's own opinion that they can share memory.
struct HostIdentity {
  char name[256];
  char boot[64];
  int shared_root;  // lowest rank that MPI says shares memory with this one
};

HostIdentity identify_host(MPI_Comm comm) {
  HostIdentity identity{};
  gethostname(identity.name, sizeof(identity.name) - 1);
  std::ifstream("/proc/sys/kernel/random/boot_id").get(identity.boot, sizeof(identity.boot));

  int rank = 0;
  MPI_Comm shared = MPI_COMM_NULL;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &shared),
            "MPI_Comm_split_type");
  check_mpi(MPI_Allreduce(&rank, &identity.shared_root, 1, MPI_INT, MPI_MIN, shared),
            "MPI_Allreduce");
  MPI_Comm_free(&shared);
  return identity;
}

}  // namespace

Topology::Topology(const std::vector<int>& host_of, const std::vector<std::string>& names) {
  std::map<int, int> index_of;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    const auto [entry, is_new] =
        index_of.try_emplace(host_of[rank], static_cast<int>(hosts_.size()));
    if (is_new) hosts_.push_back({names[rank], {}});
    Host& host = hosts_[entry->second];
    host_index_.push_back(entry->second);
    local_rank_.push_back(static_cast<int>(host.ranks.size()));
    host.ranks.push_back(rank);
  }
}

Topology Topology::discover(MPI_Comm comm, int fake_hosts) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  const HostIdentity mine = identify_host(comm);
  std::vector<HostIdentity> all(size);
  check_mpi(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm),
            "MPI_Allgather");

  std::vector<int> host_of(size);
  std::vector<std::string> names(size);
  for (int rank = 0; rank < size; ++rank) {
    names[rank] = all[rank].name;
    if (fake_hosts > 0) {
      host_of[rank] = rank % fake_hosts;
      names[rank] += "/" + std::to_string(host_of[rank]);
      continue;
    }
    int first = 0;  // the lowest rank that this one is a neighbour of names the host
    while (std::memcmp(&all[first], &all[rank], sizeof(HostIdentity)) != 0) ++first;
    host_of[rank] = first;
  }
  return Topology(host_of, names);
}

Topology Topology::subset(const std::vector<int>& ranks) const {
  std::vector<int> host_of;
  std::vector<std::string> names;
  for (const int rank : ranks) {
    host_of.push_back(host_index_[rank]);
    names.push_back(hosts_[host_index_[rank]].name);
  }
  return Topology(host_of, names);
}

int Topology::min_local_size() const {
  std::size_t smallest = hosts_.front().ranks.size();
  for (const Host& host : hosts_) smallest = std::min(smallest, host.ranks.size());
  return static_cast<int>(smallest);
}

}  // namespace ddl
