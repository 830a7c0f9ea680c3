#include "collective/ordered.h"

#include <algorithm>
#include <vector>

#include "collective/between_hosts.h"
#include "collective/exchange.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

// Bytes of a rank's part that are summed at a time.
constexpr std::size_t kPart = std::size_t{256} << 10;

class OrderedSum {
 public:
  OrderedSum(Comm& comm, DDL_Type type, DDL_Op op)
      : comm_(comm),
        width_(size_of(type)),
        reduce_(reduce_function(type, op)),
        divisor_(op == DDL_OP_AVERAGE ? comm.size() : 1.0),
        inputs_(comm.size()) {}

  std::size_t part() const { return kPart / width_; }  // elements

  // Every rank sends its n elements at `send + rank * stride` to that rank, and gets the sum of
  // what is meant for it. `recv` may lie in its own input.
  void run(const std::byte* send, std::size_t stride, std::byte* recv, std::size_t n) {
    const std::size_t nbytes = n * width_;
    std::byte* parts = comm_.workspace(nbytes * comm_.size());
    exchange_with_all(comm_, [&](Batch& batch, int to, int from) {
      batch.recv(parts + from * nbytes, nbytes, from);
      batch.send(send + to * stride * width_, nbytes, to);
    });
    for (int rank = 0; rank < comm_.size(); ++rank) inputs_[rank] = parts + rank * nbytes;
    inputs_[comm_.rank()] = send + comm_.rank() * stride * width_;
    reduce_(recv, inputs_.data(), comm_.size(), n, divisor_);
  }

 private:
  Comm& comm_;
  std::size_t width_;  // bytes per element
  ReduceFunction reduce_;
  double divisor_;
  std::vector<const void*> inputs_;
};

}  // namespace

void reduce_scatter_ordered(Comm& comm, const void* send, void* recv, std::size_t recv_count,
                            DDL_Type type, DDL_Op op) {
  OrderedSum sum(comm, type, op);
  const std::size_t width = size_of(type);
  for (std::size_t begin = 0; begin < recv_count; begin += sum.part()) {
    const std::size_t n = std::min(sum.part(), recv_count - begin);
    sum.run(static_cast<const std::byte*>(send) + begin * width, recv_count,
            static_cast<std::byte*>(recv) + begin * width, n);
  }
}

// A chunk is one part for every rank; what is left after the last is padded with zeros, whose sums
// nobody keeps.
void allreduce_ordered(Comm& comm, const void* send, void* recv, std::size_t count, DDL_Type type,
                       DDL_Op op) {
  OrderedSum sum(comm, type, op);
  const std::size_t width = size_of(type);
  const std::size_t ranks = comm.size();
  const auto* from = static_cast<const std::byte*>(send);
  auto* to = static_cast<std::byte*>(recv);
  std::vector<std::byte> mine;
  std::vector<std::byte> padded;
  for (std::size_t begin = 0; begin < count; begin += sum.part() * ranks) {
    const std::size_t length = std::min(sum.part() * ranks, count - begin);
    const std::size_t n = (length + ranks - 1) / ranks;
    const std::byte* input = from + begin * width;
    std::byte* output = to + begin * width;
    mine.resize(n * width);
    if (n * ranks > length) {
      padded.assign(n * ranks * width, std::byte{0});
      std::copy_n(input, length * width, padded.begin());
      input = padded.data();
      output = padded.data();
    }
    sum.run(input, n, mine.data(), n);
    allgather_between_hosts(comm, mine.data(), output, n * width);
    if (output == padded.data()) std::copy_n(output, length * width, to + begin * width);
  }
}

}  // namespace ddl
