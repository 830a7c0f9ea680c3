// A communicator: its ranks, where they are, and the ways to reach them.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "async/queue.h"
#include "async/reducer.h"
#include "base/call.h"
#include "base/settings.h"
#include "comm/agreement.h"
#include "comm/device_interface.h"
#include "comm/plan_book.h"
#include "timeline/timeline.h"
#include "topology/topology.h"
#include "transport/host_group.h"
#include "transport/mailbox.h"
#include "transport/mpi.h"

namespace ddl {

class Comm {
 public:
  // Collective over `comm`, which it takes over. Rank i of it is `world_ranks[i]` of the job. The
  // timeline records its calls; null: none does.
  Comm(MPI_Comm comm, Topology topology, const std::vector<int>& world_ranks,
       const Settings& settings, Timeline* timeline);
  // Gives up operations that are still queued: drain the queue first.
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

  int rank() const { return transport_.rank(); }
  int size() const { return topology_.size(); }
  const Topology& topology() const { return topology_; }
  int num_hosts() const { return static_cast<int>(topology_.hosts().size()); }
  int host_index() const { return topology_.host_index(rank()); }
  const std::vector<int>& local_ranks() const { return topology_.host_of(rank()).ranks; }
  std::string describe(int rank) const { return transport_.peers()[rank].describe(); }

  const Settings& settings() const { return settings_; }
  bool is_deterministic() const { return settings_.is_deterministic; }
  HostGroup& host() { return host_; }
  const HostGroup& host() const { return host_; }
  MpiTransport& transport() { return transport_; }
  Mailbox& mailbox() { return mailbox_; }
  Agreement& agreement() { return agreement_; }
  // The collectives for buffers on a GPU. Throws in the CPU variant.
  Device& device();

  // Between hosts, lane k joins the k-th rank of every host; every host has that many ranks.
  int num_lanes() const { return topology_.min_local_size(); }

  // The plan and window of PlanBook for the call under way.
  std::shared_ptr<const Plan> plan(const PlanKey& key) {
    return plans_.plan(key, agreement_.call_bytes());
  }
  std::size_t window() { return plans_.window(agreement_.call_bytes()); }
  const Chunking& chunking() const { return plans_.chunking(); }
  // Between hosts, data of up to so many bytes of a rank may travel with the agreement on the call.
  std::size_t small_bytes() const { return small_bytes_; }
  // Memory for messages that are under way: it outlives a collective that fails.
  std::byte* workspace(std::size_t nbytes);

  // The asynchronous operations. Blocking ones wait their turn behind them.
  Queue& queue() { return queue_; }
  ddl_stats stats() const;

  // Calls body(). Whatever it throws but Disagreement makes this communicator unusable, and is told
  // to the others: they wait for this rank.
  template <class Body>
  void or_give_up(const Body& body) {
    try {
      body();
    } catch (const Disagreement&) {
      throw;
    } catch (...) {
      with_current_error([this](const Error& error) { agreement_.give_up(error); });
      throw;
    }
  }
  // Runs one collective: one at a time, traced, and never again after a failure.
  void run(const Call& call, const std::function<void()>& collective);
  // For ddl_stats: a collective that was not a call of its own.
  void count_collective() { num_collectives_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void join_timeline(const std::vector<int>& world_ranks);
  void record(const Call& call, Clock::time_point begin, Clock::time_point end, bool has_failed);

  Topology topology_;
  Settings settings_;
  Timeline* timeline_;
  std::size_t small_bytes_;
  std::uint32_t timeline_group_ = 0;
  std::vector<std::byte> workspace_;
  MpiTransport transport_;
  Mailbox mailbox_;
  HostGroup host_;
  Agreement agreement_;
  PlanBook plans_;
  std::mutex mutex_;
  std::atomic<std::uint64_t> num_collectives_{0};
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Device> device_;
  Queue queue_;  // the last member: its thread uses the others until it has ended
};

}  // namespace ddl
