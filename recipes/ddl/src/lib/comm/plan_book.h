// The schedules that calls follow, by their size, and the plans that were made for them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/call.h"
#include "base/settings.h"
#include "schedule/cost.h"
#include "schedule/plan.h"
#include "topology/topology.h"

namespace ddl {

// A slice of a chunk of a collective between hosts.
struct PlanKey {
  Collective collective;
  int root;           // host; 0 for collectives without a root
  std::size_t count;  // elements; for all-gather and reduce-scatter a block of every rank
  bool operator<(const PlanKey& other) const {
    return std::tie(collective, root, count) < std::tie(other.collective, other.root, other.count);
  }
};

// Programs move the same few sizes again and again, so choices and plans are kept.
class PlanBook {
 public:
  // The plans are those of the host with the index `host`.
  PlanBook(const Topology& topology, const Settings& settings, const Chunking& chunking, int host);

  // The plan of this host for a slice, in a call that moves `call_bytes` in all.
  std::shared_ptr<const Plan> plan(const PlanKey& key, std::size_t call_bytes);
  int schedule(std::size_t call_bytes) { return choice_for(call_bytes).schedule; }
  // The number of chunks of such a call that are under way at a time.
  std::size_t window(std::size_t call_bytes) { return choice_for(call_bytes).window; }
  // The sizes to which messages between hosts are cut.
  const Chunking& chunking() const { return chunking_; }

 private:
  struct Choice {
    int schedule;
    std::size_t window;  // see Prediction
  };
  Choice choice_for(std::size_t call_bytes);
  Plan make_plan(const PlanKey& key, const Node& tree) const;

  const Topology& topology_;
  const Settings& settings_;
  const Chunking chunking_;
  const int host_;
  std::vector<int> host_sizes_;
  std::map<std::pair<PlanKey, int>, std::shared_ptr<const Plan>> plans_;  // and by schedule
  std::map<std::size_t, Choice> choices_;                                 // by bytes
};

}  // namespace ddl
