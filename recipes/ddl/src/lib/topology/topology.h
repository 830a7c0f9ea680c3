// The ranks of each host. The hosts themselves tell, never the rank numbers, since launchers
// interleave ranks over hosts.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "base/settings.h"
#include "topology/tree.h"

namespace ddl {

struct Host {
  std::string name;
  std::vector<int> ranks;    // ascending
  std::vector<int> sockets;  // of each of them; any numbers, -1: not known

  // The sockets by which the ranks sum, numbered from 0. All are 0 where they do not sum by socket.
  std::vector<int> sockets_in_sums(const Settings& settings) const;
};

// A set of ranks grouped by host. Hosts are ordered by their lowest rank.
class Topology {
 public:
  // `host_of[r]` is any number that is equal for ranks on one host; `names[r]` the host's name;
  // `socket_of[r]` the rank's socket there.
  Topology(const std::vector<int>& host_of, const std::vector<std::string>& names,
           const std::vector<int>& socket_of);

  // Asks all ranks of `comm` (collective): where they are, on which socket too, and how the hosts
  // are connected, from the settings' topology file or mode, else from the hosts' places. Throws
  // DDL_ERROR_ARGUMENT when these do not fit the job.
  static Topology discover(MPI_Comm comm, const Settings& settings);

  // The part of this topology that `ranks` see; rank i of the result is ranks[i] here.
  Topology subset(const std::vector<int>& ranks) const;

  int size() const { return static_cast<int>(host_index_.size()); }
  const std::vector<Host>& hosts() const { return hosts_; }
  int host_index(int rank) const { return host_index_[rank]; }
  int local_rank(int rank) const { return local_rank_[rank]; }
  const Host& host_of(int rank) const { return hosts_[host_index_[rank]]; }
  int min_local_size() const;
  int max_local_size() const;
  // The hosts' connections; without better knowledge, all hosts stand side by side.
  const Node& tree() const { return tree_; }

 private:
  void follow_mode(const std::vector<int>& dimensions);
  void follow_file(const std::string& text, const std::string& source);

  std::vector<Host> hosts_;
  std::vector<int> host_index_;
  std::vector<int> local_rank_;
  Node tree_;
};

}  // namespace ddl
