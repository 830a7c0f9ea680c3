#include "schedule/cost.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "schedule/plan.h"
#include "schedule/rates.h"
#include "schedule/route.h"
#include "schedule/walk.h"

namespace ddl {
namespace {

// The load that the plans of all hosts put on every link, found in one walk.
class Loads {
 public:
  Loads(const Rates& rates, const Wire& wire, double bytes_per_element, std::size_t lanes)
      : rates_(rates), wire_(wire), width_(bytes_per_element), lanes_(lanes) {}

  void enter(const Node& node) {
    if (node.is_host()) host_at_[node.host] = nodes_.size();
    State state;
    state.name = node.name;
    state.exchange = node.exchange;
    state.rate = rates_.of(node);
    state.latency = rates_.latency(node);
    state.is_narrow = rates_.is_narrow(node);
    state.parent = open_.empty() ? 0 : open_.back();
    nodes_.push_back(std::move(state));
    if (!node.is_host()) open_.push_back(nodes_.size() - 1);
  }

  void part(const std::vector<int>& owners) {
    close_part();
    owners_ = owners;
    reduced_.assign(owners.size(), 0);
  }

  void reduce(Span span, std::size_t j) { reduced_[j] = static_cast<double>(span.count()); }

  void leave(const Node& node, int depth) {
    close_part();
    const std::size_t top = open_.back();
    open_.pop_back();
    Step step;
    for (std::size_t at = nodes_.size(); at-- > top + 1;) climb(at, top, &step);
    const int rounds = num_rounds(node.exchange, node.children.size());
    // A ring's rounds have a part of the bytes each; those of a tree, all.
    const double whole = node.exchange == Exchange::kTree ? rounds : 1;
    Step& most = steps_[depth];
    most.rounds = std::max(most.rounds, rounds);
    most.latency = std::max(most.latency, step.latency * rounds);
    most.link = std::max(most.link, step.link * whole);
    most.processor = std::max(most.processor, step.processor * whole);
  }

  // The time of a chunk alone, and its share of the busiest link or processor.
  double alone() const {
    double sum = 0;
    for (const auto& [depth, step] : steps_) {
      sum += 2 * (2 * step.latency + step.link + step.processor);
    }
    return sum;
  }
  double latency() const {
    double sum = 0;
    for (const auto& [depth, step] : steps_) sum += 4 * step.latency;
    return sum;
  }
  int steps() const {
    int sum = 0;
    for (const auto& [depth, step] : steps_) sum += 2 * step.rounds;
    return sum;
  }

  struct Busiest {
    double seconds = 0;
    std::string name;
    bool is_narrow = false;
  };
  Busiest busiest_link() const {
    Busiest most;
    for (const State& node : nodes_) {
      const double seconds = 2 * node.total / node.rate;
      if (seconds > most.seconds) most = {seconds, node.name, node.is_narrow};
    }
    return most;
  }
  double busiest_processor() const {
    double most = 0;
    for (const State& node : nodes_) most = std::max(most, 2 * node.processor);
    return most;
  }
  std::size_t most_messages() const {
    std::size_t most = 0;
    for (const State& node : nodes_) most = std::max(most, node.messages);
    return most;
  }

 private:
  // Numbers are of the way up; the way down is its mirror image.
  struct State {
    std::string name;
    Exchange exchange = Exchange::kDirect;  // of its children
    double rate = 0;
    double latency = 0;
    bool is_narrow = false;
    std::size_t parent = 0;
    // In the group that is being left: elements that leave this node, that enter it, and a host's
    // messages.
    double out = 0;
    double in = 0;
    std::size_t sends = 0;
    std::size_t recvs = 0;
    double way = 0;  // the longest of the hosts below that take part, to above this node
    // Over all groups:
    double total = 0;  // bytes in each direction, half of both ways together
    double processor = 0;
    std::size_t messages = 0;
  };
  struct Step {
    int rounds = 0;
    double latency = 0;  // of the longest way up, in all rounds
    double link = 0;
    double processor = 0;
  };

  void close_part() {
    double whole = 0;
    std::size_t pieces = 0;
    for (const double n : reduced_) {
      whole += n;
      pieces += n > 0 ? 1 : 0;
    }
    const Exchange exchange = nodes_[open_.back()].exchange;
    const std::size_t others = owners_.size() - 1;
    for (std::size_t j = 0; j < reduced_.size(); ++j) {
      State& host = nodes_[host_at_[owners_[j]]];
      if (exchange == Exchange::kTree) {
        add_tree(j, &host);
        continue;
      }
      host.out += whole - reduced_[j];
      host.sends += pieces - (reduced_[j] > 0 ? 1 : 0);
      if (exchange == Exchange::kRing) {  // all but the left neighbour's piece comes through here
        const double left = reduced_[(j + others) % reduced_.size()];
        host.in += whole - left;
        host.recvs += pieces - (left > 0 ? 1 : 0);
      } else {
        host.in += reduced_[j] * static_cast<double>(others);
        host.recvs += reduced_[j] > 0 ? others : 0;
      }
    }
    reduced_.clear();
  }

  void add_tree(std::size_t j, State* host) {
    for (std::size_t owner = 0; owner < reduced_.size(); ++owner) {
      if (reduced_[owner] <= 0) continue;
      const Route way = route(Exchange::kTree, reduced_.size(), owner, j);
      const std::size_t comes = way.reduces < 0 ? 0 : way.from.size() - 1;
      host->in += reduced_[owner] * static_cast<double>(comes);
      host->recvs += comes;
      host->out += way.sends < 0 ? 0 : reduced_[owner];
      host->sends += way.sends < 0 ? 0 : 1;
    }
  }

  // Adds the load of a node to its parent, and to the step. Children come before their parents.
  void climb(std::size_t at, std::size_t top, Step* step) {
    State& node = nodes_[at];
    if (node.sends + node.recvs > 0) {
      const double processor = static_cast<double>(node.sends + node.recvs) * wire_.overhead +
                               (node.in + node.out) * width_ * wire_.processing;
      node.processor += processor;
      node.messages += node.sends + node.recvs;  // up it sends the ones, down the others
      step->processor = std::max(step->processor, processor);
    }
    if (node.in + node.out > 0) {
      const double scale = width_ * static_cast<double>(lanes_);
      node.way += node.latency;
      node.total += (node.in + node.out) / 2 * scale;
      step->link = std::max(step->link, std::max(node.in, node.out) * scale / node.rate);
      step->latency = std::max(step->latency, node.way);
      if (node.parent != top) {
        State& parent = nodes_[node.parent];
        parent.out += node.out;
        parent.in += node.in;
        parent.way = std::max(parent.way, node.way);
      }
    }
    node.in = node.out = node.way = 0;
    node.sends = node.recvs = 0;
  }

  const Rates& rates_;
  const Wire& wire_;
  double width_;
  std::size_t lanes_;
  std::vector<State> nodes_;  // in the order of the walk: a node's descendants follow it
  std::vector<std::size_t> open_;
  std::map<int, std::size_t> host_at_;
  std::vector<int> owners_;
  std::vector<double> reduced_;  // elements, by the child whose owner reduces them
  std::map<int, Step> steps_;    // by depth
};

}  // namespace

std::size_t Chunking::chunk_bytes(std::size_t nbytes) const {
  return std::clamp(nbytes / wanted_chunks, least_chunk, most_chunk);
}

Chunking usual_chunking(const Node& tree, int lanes) {
  constexpr std::size_t kMessage = std::size_t{32} << 10;
  constexpr std::size_t kMost = std::size_t{2} << 20;
  Chunking chunking;
  chunking.lanes = static_cast<std::size_t>(lanes);
  const std::size_t messages = chunking.lanes * static_cast<std::size_t>(tree.widest());
  chunking.most_chunk = std::clamp(kMessage * messages, chunking.most_chunk, kMost);
  return chunking;
}

Wire usual_wire(const Node& tree) {
  Wire wire;
  wire.overhead = std::min(wire.overhead, Rates(tree, wire).least_latency());
  return wire;
}

bool is_measured(const Node& tree) { return Rates(tree, Wire()).are_measured(); }

Prediction predict_allreduce(const Node& tree, std::size_t nbytes, const Chunking& chunking,
                             const Wire& wire) {
  const Rates rates(tree, wire);
  Prediction result;
  result.bound = lower_bound(tree, static_cast<double>(nbytes), wire);
  result.chunk = std::min(nbytes, chunking.chunk_bytes(nbytes));
  result.window = chunking.slots;
  if (nbytes == 0) return result;
  result.chunks = (nbytes + result.chunk - 1) / result.chunk;

  const std::size_t slice = std::max<std::size_t>(
      1, result.chunk / chunking.width / std::max<std::size_t>(1, chunking.lanes));
  Loads loads(rates, wire, static_cast<double>(chunking.width), chunking.lanes);
  Walk<Loads>(kPlanUnit, &loads).run(tree, slice);
  const double within = wire.within_host * static_cast<double>(result.chunk);
  const double alone = loads.alone() + within;
  const Loads::Busiest link = loads.busiest_link();
  const double processor = loads.busiest_processor() + within;
  const double window = alone / static_cast<double>(chunking.slots);
  const double each = std::max({link.seconds, processor, window});
  const double more = static_cast<double>(nbytes) / static_cast<double>(result.chunk) - 1;

  const double agreement =
      std::ceil(std::log2(tree.num_hosts())) * (diameter(tree, rates) + 2 * wire.overhead);
  result.seconds = agreement + alone + more * each;
  result.steps = loads.steps();
  result.messages = loads.most_messages();
  const double latency = agreement + loads.latency() + more * (each == window ? window : 0);
  if (latency > result.seconds / 2) {
    result.limit = "latency";
  } else {
    result.limit = link.seconds >= processor ? "link of " + link.name : "processors";
  }
  if (link.is_narrow && link.seconds > processor) {
    // There is one chunk more, for the copies and sums in the hosts.
    const double enough = std::ceil(alone / link.seconds) + 1;
    result.window = std::min(result.window, static_cast<std::size_t>(enough));
  }
  return result;
}

}  // namespace ddl
