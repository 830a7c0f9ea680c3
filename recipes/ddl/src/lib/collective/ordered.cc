#include "collective/ordered.h"

#include <algorithm>

#include "collective/between_hosts.h"
#include "collective/exchange.h"

namespace ddl {
namespace {

constexpr std::size_t kPart = std::size_t{256} << 10;  // bytes

}  // namespace

OrderedSum::OrderedSum(Comm& comm, const Arguments& args)
    : comm_(comm),
      width_(size_of(args.type)),
      reduce_(reduce_function(args.type, args.op)),
      divisor_(args.op == DDL_OP_AVERAGE ? comm.size() : 1.0),
      inputs_(comm.size()) {}

std::size_t OrderedSum::part() const { return kPart / width_; }

void OrderedSum::run(const std::byte* send, std::size_t stride, std::byte* recv, std::size_t n) {
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

void OrderedSum::run_in_chunks(const Arguments& args, bool has_result, const Share& share) {
  const std::size_t ranks = comm_.size();
  const auto* from = static_cast<const std::byte*>(args.send);
  auto* to = static_cast<std::byte*>(args.recv);
  std::vector<std::byte> mine;
  std::vector<std::byte> padded;
  for (std::size_t begin = 0; begin < args.count; begin += part() * ranks) {
    const std::size_t length = std::min(part() * ranks, args.count - begin);
    const std::size_t n = (length + ranks - 1) / ranks;
    const std::byte* input = from + begin * width_;
    std::byte* output = has_result ? to + begin * width_ : nullptr;
    mine.resize(n * width_);
    if (n * ranks > length) {
      padded.assign(n * ranks * width_, std::byte{0});
      std::copy_n(input, length * width_, padded.begin());
      input = padded.data();
      if (has_result) output = padded.data();
    }
    run(input, n, mine.data(), n);
    share(mine.data(), n, output);
    if (has_result && output == padded.data()) {
      std::copy_n(output, length * width_, to + begin * width_);
    }
  }
}

void reduce_scatter_ordered(Comm& comm, const Arguments& args) {
  OrderedSum sum(comm, args);
  const std::size_t width = size_of(args.type);
  for (std::size_t begin = 0; begin < args.count; begin += sum.part()) {
    const std::size_t n = std::min(sum.part(), args.count - begin);
    sum.run(static_cast<const std::byte*>(args.send) + begin * width, args.count,
            static_cast<std::byte*>(args.recv) + begin * width, n);
  }
}

void allreduce_ordered(Comm& comm, const Arguments& args) {
  const std::size_t width = size_of(args.type);
  const auto share = [&](const std::byte* mine, std::size_t n, std::byte* output) {
    allgather_between_hosts(comm, bytes_to_move(mine, output, n * width));
  };
  OrderedSum(comm, args).run_in_chunks(args, true, share);
}

}  // namespace ddl
