// Allreduce between hosts, in chunks that are under way at the same time.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "comm.h"
#include "reduce/kernels.h"

namespace ddl {

// Part `index` of `count` elements cut into `parts`, on 64-element borders so that slices do not
// share cache lines.
Span part_of(std::size_t count, int parts, int index);

// A chunk is cut into one slice per lane. The k-th rank of every host sums slice k of its host,
// straight from the others' shared memory, follows the plan with the k-th ranks of the other hosts,
// and leaves the result in shared memory for its host. Each chunk is in a step of its own: while
// one is reduced in the racks, another is between racks and a third on its way back, so that all
// links are busy.
//
// 16-bit floats are summed in float32 and rounded once per level: inside the host, and at every
// level of the tree. Their averages are divided by a power of two on the first level, so that no
// sum overflows, and by the rest on the last.
class PipelinedAllreduce {
 public:
  PipelinedAllreduce(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                     DDL_Op op);
  void run();

 private:
  // Our slice of a chunk under way, between its start on the network and its release.
  struct Slot {
    std::shared_ptr<const Plan> plan;
    const std::byte* own = nullptr;    // this host's part of the slice, for the first step
    std::byte* work = nullptr;         // where sums and results of the slice go
    std::byte* inbox = nullptr;        // where the other hosts' parts arrive
    std::size_t step = 0;              // the plan's number of steps: done
    std::vector<std::size_t> awaited;  // per step: messages still to come
    std::vector<std::vector<std::size_t>> missing;  // per step and reduction: parts still to come
    std::size_t sending = 0;                        // messages that have not left
  };

  std::size_t begin(std::size_t c) const { return c * chunk_; }
  std::size_t length(std::size_t c) const { return std::min(chunk_, count_ - begin(c)); }
  Span slice(std::size_t c, int lane) const { return part_of(length(c), lanes_, lane); }
  std::size_t slot_index(std::size_t c) const { return c % slots_.size(); }

  // Chunks go through these in order; each says whether it could do its part for the next one.
  bool bring_next();    // our input, to shared memory
  bool start_next();    // when the inputs of the host's ranks lie there: our slice's sum
  bool finish_next();   // when our slice is done: to the result, and known to the host
  bool release_next();  // when all slices of the host are done: to the result

  void reduce_on_host(std::size_t c, Span s, Slot* slot);
  void begin_steps(std::size_t index);
  void advance(std::size_t index);
  void post_receives(std::size_t index);
  void post_sends(std::size_t index);
  void reduce(const Slot& slot, const Reduction& reduction);
  void complete(std::uint64_t id);
  std::string missing_ranks() const;

  Comm& comm_;
  HostGroup& host_;
  const std::byte* send_;
  std::byte* recv_;
  std::size_t count_;
  ReduceFunction reduce_;
  double first_divisor_;  // of the sum on the host
  double last_divisor_;   // of the last sum between hosts
  std::size_t width_;     // bytes per element
  int lanes_;
  std::size_t chunk_;   // elements
  std::size_t chunks_;  // how many
  CopyFunction copy_out_;
  std::uint32_t arrived_;
  std::uint32_t done_;
  std::size_t brought_ = 0;  // chunks that have passed each step
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
  std::size_t released_ = 0;
  std::vector<Slot> slots_;
  std::vector<const void*> inputs_;
  Batch batch_;
};

}  // namespace ddl
