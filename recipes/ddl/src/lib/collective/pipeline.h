// Collectives between hosts, in chunks that are under way at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "comm/comm.h"
#include "reduce/kernels.h"

namespace ddl {

// The elements of `width` bytes in a chunk of a collective that moves `nbytes` in all.
std::size_t chunk_elements(const Comm& comm, std::size_t nbytes, std::size_t width);

// A chunk is cut into one slice per lane. The k-th rank of every host follows a plan for slice k
// with the k-th ranks of the other hosts, and leaves the result in shared memory for its host. Each
// chunk is in a step of its own: while one moves inside the racks, another is between racks and a
// third on its way back, so that all links are busy.
class Pipeline {
 public:
  virtual ~Pipeline() = default;
  void run();

 protected:
  // Our slice of a chunk under way, between its start on the network and its release.
  struct Slot {
    std::shared_ptr<const Plan> plan;               // null: nothing to do
    const std::byte* own = nullptr;                 // this host's data, which may not be changed
    std::byte* work = nullptr;                      // where sums and results of the slice go
    std::byte* inbox = nullptr;                     // where the other hosts' parts arrive
    std::size_t step = 0;                           // the plan's number of steps: done
    std::vector<std::size_t> awaited;               // per step: messages still to come
    std::vector<std::vector<std::size_t>> missing;  // per step and reduction: parts still to come
    std::size_t sending = 0;                        // messages that have not left
  };

  // `width`: bytes per element. `reduce` divides the last sum of each element by
  // `last_divisor`; null for plans without reductions. `by_socket`: the ranks of every socket sum
  // their inputs first.
  Pipeline(Comm& comm, std::size_t chunks, std::size_t width, ReduceFunction reduce,
           double last_divisor, bool by_socket = false);

  // Hooks that each collective implements, called in this order for each chunk. A slot's memory is
  // reserved until every rank on the host has released it:
  // - bring copies this rank's input to shared memory;
  // - sum adds up this rank's part of its socket's inputs;
  // - start adds up the host's inputs, and sets the slot's plan, own and work;
  // - finish follows the last message of this rank's slice;
  // - release copies the finished chunk to the caller's memory.
  virtual void bring(std::size_t c) = 0;
  virtual void sum(std::size_t) {}
  virtual void start(std::size_t c, Slot* slot) = 0;
  virtual void finish(std::size_t c, const Slot& slot) = 0;
  virtual void release(std::size_t c) = 0;
  // The most bytes that a plan of start() receives for reductions. Only ranks of a lane are asked.
  virtual std::size_t inbox_bytes() = 0;

  bool is_lane() const { return host_.rank() < lanes_; }
  int slot_index(std::size_t c) const { return static_cast<int>(c % slots_.size()); }

  Comm& comm_;
  HostGroup& host_;
  const int lanes_;
  const std::size_t width_;
  const ReduceFunction reduce_;
  const bool by_socket_;
  std::vector<const void*> inputs_;  // of the sum at hand

 private:
  // Each returns whether it could do its part for the next chunk.
  bool bring_next();
  bool sum_next();
  bool start_next();
  bool finish_next();
  bool release_next();

  void begin_steps(std::size_t index);
  void advance(std::size_t index);
  void post_receives(std::size_t index);
  void post_sends(std::size_t index);
  void reduce(const Slot& slot, const Reduction& reduction);
  void complete(std::uint64_t id);
  std::vector<int> missing_ranks() const;

  double last_divisor_;
  std::size_t chunks_;
  std::uint32_t arrived_;
  std::uint32_t summed_before_;
  std::uint32_t done_;
  std::size_t brought_ = 0;  // chunks that have passed each step
  std::size_t summed_ = 0;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::size_t released_ = 0;
  std::vector<Slot> slots_;
  std::size_t window_;  // chunks under way: at most kSlotsBetweenHosts
  Batch batch_;
};

}  // namespace ddl
