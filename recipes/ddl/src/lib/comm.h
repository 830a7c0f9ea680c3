// A communicator: its ranks, where they are, and the ways to reach them.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "call.h"
#include "schedule/plan.h"
#include "settings.h"
#include "topology/topology.h"
#include "transport/host_group.h"
#include "transport/mpi.h"

namespace ddl {

// The ranks did not make the same call. All of them know, nothing was moved: the communicator stays
// usable, unlike after any other error.
class Disagreement : public Error {
 public:
  explicit Disagreement(const std::string& message) : Error(DDL_ERROR_MISMATCH, message) {}
};

class Comm {
 public:
  // Collective over `comm`, which it takes over. Rank i of it is `world_ranks[i]` of the job.
  Comm(MPI_Comm comm, Topology topology, const std::vector<int>& world_ranks,
       const Settings& settings);

  int rank() const { return rank_; }
  int size() const { return topology_.size(); }
  const Topology& topology() const { return topology_; }
  int num_hosts() const { return static_cast<int>(topology_.hosts().size()); }
  int host_index() const { return topology_.host_index(rank_); }
  const std::vector<int>& local_ranks() const { return topology_.host_of(rank_).ranks; }
  std::string describe(int rank) const { return transport_.peers()[rank].describe(); }

  HostGroup& host() { return host_; }
  MpiTransport& transport() { return transport_; }

  // Between hosts, lane k joins the k-th rank of every host; every host has that many ranks.
  int num_lanes() const { return topology_.min_local_size(); }

  // What this host does to reduce `count` elements with the others, a slice of a chunk of the call
  // under way; made once.
  std::shared_ptr<const Plan> plan(std::size_t count);
  // Memory for messages that are under way: it outlives a collective that fails.
  std::byte* workspace(std::size_t nbytes);

  // Runs one collective: one at a time, traced, and never again after a failure.
  void run(const Call& call, const std::function<void()>& collective);

  // Returns when all ranks have entered and made the same call; throws Disagreement on all if not.
  void begin(const Call& call);

  // begin() in two halves, for collectives within one host that bring their input along.
  void announce(const Call& call);
  void agree_on_host();
  int call_parity() const { return static_cast<int>(num_calls_ & 1); }

 private:
  // Of the schedule for an allreduce of `nbytes`.
  int radix_for(std::size_t nbytes);
  Verdict compare_calls();
  Verdict agree_between_hosts(Verdict verdict);
  void enforce(const Verdict& verdict) const;

  Topology topology_;
  int rank_;
  int debug_level_;
  int dump_every_;
  int radix_;  // kAnyRadix: chosen by size
  std::vector<std::byte> workspace_;
  MpiTransport transport_;
  HostGroup host_;
  std::mutex mutex_;
  std::map<std::pair<int, std::size_t>, std::shared_ptr<const Plan>> plans_;  // by radix and count
  std::map<std::size_t, int> radixes_;                                        // by bytes
  std::size_t call_bytes_ = 0;  // of the allreduce under way
  std::uint64_t num_calls_ = 0;
  std::optional<Error> failure_;
};

}  // namespace ddl
