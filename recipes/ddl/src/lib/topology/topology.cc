#include "topology/topology.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>

#include "base/error.h"
#include "topology/file.h"
#include "topology/place.h"
#include "topology/sockets.h"
#include "transport/mpi_error.h"

namespace ddl {
namespace {

// Two ranks are on one host when all of this is equal: the host's name, the boot of the kernel (two
// machines may be called "localhost") and MPI's own opinion that they can share memory.
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

// The sockets of all ranks.
std::vector<int> gather_sockets(MPI_Comm comm, int size) {
  const int mine = own_socket();
  std::vector<int> all(size);
  check_mpi(MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, comm), "MPI_Allgather");
  return all;
}

// The place of every host, as its first rank tells it; "" for hosts that are told nothing.
std::vector<std::string> gather_places(MPI_Comm comm, const std::vector<Host>& hosts) {
  struct Place {
    char text[kMaxPlace + 1];
  };
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  Place mine{};
  own_place().copy(mine.text, kMaxPlace);  // one of that length is refused
  std::vector<Place> all(size);
  check_mpi(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, comm),
            "MPI_Allgather");
  std::vector<std::string> places;
  for (const Host& host : hosts) places.emplace_back(all[host.ranks.front()].text);
  return places;
}

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

// Only one rank reads, since hosts need not share a file system. All get the same text or error.
std::string read_on_first_rank(MPI_Comm comm, const std::string& path) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  std::string text;
  long nbytes = -1;
  if (rank == 0) {
    std::ifstream file(path, std::ios::binary);
    if (file) {
      text.assign(std::istreambuf_iterator<char>(file), {});
      nbytes = static_cast<long>(text.size());
    }
  }
  check_mpi(MPI_Bcast(&nbytes, 1, MPI_LONG, 0, comm), "MPI_Bcast");
  if (nbytes < 0) {
    fail(DDL_ERROR_ARGUMENT, "-topology ", path, ": rank 0 cannot read this file; check the path");
  }
  text.resize(nbytes);
  check_mpi(MPI_Bcast(text.data(), static_cast<int>(nbytes), MPI_CHAR, 0, comm), "MPI_Bcast");
  return text;
}

// Sets sockets as the tree says. Elsewhere, those that the ranks have found hold.
void spread_over_sockets(const Node& node, std::vector<Host>* hosts) {
  for (const Node& child : node.children) spread_over_sockets(child, hosts);
  if (node.sockets == 0) return;
  std::vector<int>& sockets = (*hosts)[node.host].sockets;
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    sockets[i] = static_cast<int>(i * static_cast<std::size_t>(node.sockets) / sockets.size());
  }
}

}  // namespace

std::vector<int> Host::sockets_in_sums(const Settings& settings) const {
  const bool pays = settings.fake_sockets > 0 || pays_by_socket(sockets);
  // Sums by socket have another order.
  if (settings.is_deterministic || !pays) return std::vector<int>(ranks.size(), 0);
  return number_sockets(sockets);
}

Topology::Topology(const std::vector<int>& host_of, const std::vector<std::string>& names,
                   const std::vector<int>& socket_of) {
  std::map<int, int> index_of;
  for (int rank = 0; rank < static_cast<int>(host_of.size()); ++rank) {
    const auto [entry, is_new] =
        index_of.try_emplace(host_of[rank], static_cast<int>(hosts_.size()));
    if (is_new) hosts_.push_back({names[rank], {}, {}});
    Host& host = hosts_[entry->second];
    host_index_.push_back(entry->second);
    local_rank_.push_back(static_cast<int>(host.ranks.size()));
    host.ranks.push_back(rank);
    host.sockets.push_back(socket_of[rank]);
  }
  tree_ = flat_tree(names_of(hosts_));
}

Topology Topology::discover(MPI_Comm comm, const Settings& settings) {
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
    if (settings.fake_hosts > 0) {
      host_of[rank] = rank % settings.fake_hosts;
      names[rank] += "/" + std::to_string(host_of[rank]);
      continue;
    }
    int first = 0;  // the lowest rank that this one is a neighbour of names the host
    while (std::memcmp(&all[first], &all[rank], sizeof(HostIdentity)) != 0) ++first;
    host_of[rank] = first;
  }
  Topology topology(host_of, names, gather_sockets(comm, size));
  if (settings.fake_sockets > 0) {
    for (Host& host : topology.hosts_) {
      for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        host.sockets[i] = static_cast<int>(i) % settings.fake_sockets;
      }
    }
  }
  if (!settings.topology_file.empty()) {
    const std::string text = read_on_first_rank(comm, settings.topology_file);
    topology.follow_file(text, settings.topology_file);
  } else if (settings.mode != 0) {
    topology.follow_mode(settings.dimensions);
  } else {
    topology.tree_ =
        tree_of_places(names_of(topology.hosts_), gather_places(comm, topology.hosts_));
  }
  return topology;
}

void Topology::follow_file(const std::string& text, const std::string& source) {
  tree_ = assign_hosts(parse_topology(text, source), names_of(hosts_), source);
  spread_over_sockets(tree_, &hosts_);
}

// -mode X:AxBxC says that a host has A ranks, a rack B hosts, and so on.
void Topology::follow_mode(const std::vector<int>& dimensions) {
  const auto is_full = [&](const Host& host) {
    return static_cast<int>(host.ranks.size()) == dimensions.front();
  };
  if (dimensions.size() < 3 || !std::all_of(hosts_.begin(), hosts_.end(), is_full)) return;
  tree_ = tree_of_sizes(names_of(hosts_), {dimensions.begin() + 1, dimensions.end() - 1});
}

Topology Topology::subset(const std::vector<int>& ranks) const {
  std::vector<int> host_of;
  std::vector<std::string> names;
  std::vector<int> socket_of;
  for (const int rank : ranks) {
    const Host& host = hosts_[host_index_[rank]];
    host_of.push_back(host_index_[rank]);
    names.push_back(host.name);
    socket_of.push_back(host.sockets[local_rank_[rank]]);
  }
  Topology part(host_of, names, socket_of);
  std::vector<int> new_index(hosts_.size(), -1);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    new_index[host_index_[ranks[i]]] = part.host_index_[i];
  }
  part.tree_ = select_hosts(tree_, new_index);
  return part;
}

int Topology::min_local_size() const {
  std::size_t smallest = hosts_.front().ranks.size();
  for (const Host& host : hosts_) smallest = std::min(smallest, host.ranks.size());
  return static_cast<int>(smallest);
}

int Topology::max_local_size() const {
  std::size_t largest = 0;
  for (const Host& host : hosts_) largest = std::max(largest, host.ranks.size());
  return static_cast<int>(largest);
}

}  // namespace ddl
