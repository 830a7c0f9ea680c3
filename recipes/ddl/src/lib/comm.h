// A communicator: its ranks, where they are, and the ways to reach them.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "async/queue.h"
#include "call.h"
#include "device/device.h"
#include "schedule/cost.h"
#include "schedule/plan.h"
#include "settings.h"
#include "topology/topology.h"
#include "transport/host_group.h"
#include "transport/inquiry.h"
#include "transport/mailbox.h"
#include "transport/mpi.h"

namespace ddl {

// The ranks did not make the same call. All of them know, nothing was moved: the communicator stays
// usable, unlike after any other error.
class Disagreement : public Error {
 public:
  explicit Disagreement(const std::string& message) : Error(DDL_ERROR_MISMATCH, message) {}
};

class Fusion;

class Comm {
 public:
  // Collective over `comm`, which it takes over. Rank i of it is `world_ranks[i]` of the job.
  Comm(MPI_Comm comm, Topology topology, const std::vector<int>& world_ranks,
       const Settings& settings);
  // Gives up what is still queued: drain the queue first.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  // A communicator of these of its ranks, in this order; `tag` as in ddl_comm_create. Collective
  // over them.
  std::unique_ptr<Comm> subset(const std::vector<int>& ranks, int tag);
  // Returns when all of these ranks have come here, for the same ranks and tag. Throws
  // DDL_ERROR_MISMATCH when they came for others; after any other error this communicator is
  // unusable, as after a collective's.
  void meet(const std::vector<int>& ranks, int tag);

  int rank() const { return rank_; }
  int size() const { return topology_.size(); }
  const Topology& topology() const { return topology_; }
  int num_hosts() const { return static_cast<int>(topology_.hosts().size()); }
  int host_index() const { return topology_.host_index(rank_); }
  const std::vector<int>& local_ranks() const { return topology_.host_of(rank_).ranks; }
  std::string describe(int rank) const { return transport_.peers()[rank].describe(); }

  const Settings& settings() const { return settings_; }
  bool is_deterministic() const { return settings_.is_deterministic; }
  HostGroup& host() { return host_; }
  const HostGroup& host() const { return host_; }
  MpiTransport& transport() { return transport_; }
  Mailbox& mailbox() { return mailbox_; }
  // For buffers on a GPU. Throws in the CPU variant.
  Device& device();

  // Between hosts, lane k joins the k-th rank of every host; every host has that many ranks.
  int num_lanes() const { return topology_.min_local_size(); }

  // What this host does in a collective on `count` elements with the others, a slice of a chunk of
  // the call under way; made once. For kAllgather and kReduceScatter these are a block of every
  // rank, host by host.
  struct PlanKey {
    Collective collective;
    int root;  // host, of kBroadcast
    std::size_t count;
    bool operator<(const PlanKey& other) const {
      return std::tie(collective, root, count) <
             std::tie(other.collective, other.root, other.count);
    }
  };
  std::shared_ptr<const Plan> plan(const PlanKey& key);
  // How messages between hosts are cut, and how many chunks of the call under way at a time.
  const Chunking& chunking() const { return chunking_; }
  std::size_t window() { return choice_for(call_bytes_).window; }
  // Memory for messages that are under way: it outlives a collective that fails.
  std::byte* workspace(std::size_t nbytes);

  // The asynchronous operations. Blocking ones wait their turn behind them.
  Queue& queue() { return queue_; }
  ddl_stats stats() const;

  // Runs one collective: one at a time, traced, and never again after a failure.
  void run(const Call& call, const std::function<void()>& collective);

  // Returns when all ranks have entered and made the same call; throws Disagreement on all if not.
  // The result is the least `fusion` of all ranks.
  std::uint32_t begin(const Call& call);

  // From now on allreduces are announced as fused of what `fingerprint` stands for; 0: not fused.
  void announce_as_fused(std::uint32_t fingerprint) { fusion_fingerprint_ = fingerprint; }

  // begin() in two halves, for collectives within one host that bring their input along.
  void announce(const Call& call);
  void agree_on_host();
  int call_parity() const { return static_cast<int>(num_calls_ & 1); }

 private:
  void check_usable();
  // From now on no call succeeds; the others are told that this rank gave up, and why.
  void give_up(const Error& error);
  void tell_others(const Error& error);
  Call announced(Call call) const;
  Plan make_plan(const PlanKey& key, const Node& tree) const;
  struct Choice {
    int schedule;
    std::size_t window;  // see Prediction
  };
  // For `nbytes` in all.
  Choice choice_for(std::size_t nbytes);
  Verdict compare_calls();
  Verdict agree_between_hosts(Verdict verdict);
  void enforce(const Verdict& verdict) const;

  Topology topology_;
  int rank_;
  Settings settings_;
  std::vector<std::byte> workspace_;
  MpiTransport transport_;
  Mailbox mailbox_;
  HostGroup host_;
  std::unique_ptr<Inquiry> inquiry_;  // between hosts
  std::mutex mutex_;
  Chunking chunking_;
  std::map<std::pair<PlanKey, int>, std::shared_ptr<const Plan>> plans_;  // and by schedule
  std::map<std::size_t, Choice> choices_;                                 // by bytes
  std::size_t call_bytes_ = 0;  // of the collective under way, in all
  std::uint64_t num_calls_ = 0;
  std::uint32_t fusion_fingerprint_ = 0;
  std::atomic<std::uint64_t> num_collectives_{0};
  std::mutex failure_mutex_;
  std::optional<Error> failure_;
  std::unique_ptr<Fusion> fusion_;
  std::unique_ptr<Device> device_;
  Queue queue_;  // the last member: its thread uses the others until it has ended
};

}  // namespace ddl
