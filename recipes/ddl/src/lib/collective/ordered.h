// Reductions between hosts whose result does not depend on the topology (-deterministic 1). One
// rank sums each element in the order of ranks, as on one host. There are no partial sums, so an
// uplink carries the data of every rank behind it.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/arguments.h"
#include "comm/comm.h"
#include "reduce/kernels.h"

namespace ddl {

class OrderedSum {
 public:
  OrderedSum(Comm& comm, const Arguments& args);

  std::size_t part() const;  // elements of a rank's part that are summed at a time

  // Every rank sends its n elements at `send + rank * stride` to that rank, and gets the sum of the
  // elements that are meant for it. `recv` may lie in its own input.
  void run(const std::byte* send, std::size_t stride, std::byte* recv, std::size_t n);

  // Cuts args.count elements into chunks of one part for every rank, and sums this rank's part of
  // each. Then share(mine, n, output) spreads the chunk: every rank has n sums in `mine`, and
  // `output` takes those of all ranks in order. Zeros pad the last chunk, and nobody keeps their
  // sums. `output` is null on ranks without a result in args.recv.
  using Share = std::function<void(const std::byte* mine, std::size_t n, std::byte* output)>;
  void run_in_chunks(const Arguments& args, bool has_result, const Share& share);

 private:
  Comm& comm_;
  std::size_t width_;  // bytes per element
  ReduceFunction reduce_;
  double divisor_;
  std::vector<const void*> inputs_;
};

void allreduce_ordered(Comm& comm, const Arguments& args);
void reduce_scatter_ordered(Comm& comm, const Arguments& args);

}  // namespace ddl
