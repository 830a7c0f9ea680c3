#include "bitwise.h"

#include "error.h"

namespace ddl_torch {
namespace {

int size_of(ddl_comm_t comm) {
  int size = 0;
  check(ddl_comm_size(comm, &size));
  return size;
}

// A bitwise operation on integers is the same on their bytes.
at::Tensor bytes_of(const at::Tensor& tensor) { return tensor.view({-1}).view(at::kByte); }

// Every rank gets its block of all ranks' `from`, and makes one of them.
at::Tensor exchange_and_fold(ddl_comm_t comm, int size, Bitwise op, const at::Tensor& from) {
  const at::Tensor blocks = at::empty({size, from.numel() / size}, from.options());
  check(ddl_comm_alltoall(comm, from.const_data_ptr(), blocks.data_ptr(), blocks.size(1)));
  at::Tensor result = blocks[0];
  for (int rank = 1; rank < size; ++rank) {
    if (op == Bitwise::kAnd) result.bitwise_and_(blocks[rank]);
    if (op == Bitwise::kOr) result.bitwise_or_(blocks[rank]);
    if (op == Bitwise::kXor) result.bitwise_xor_(blocks[rank]);
  }
  return result;
}

}  // namespace

void bitwise_reduce_scatter(ddl_comm_t comm, Bitwise op, const at::Tensor& from,
                            const at::Tensor& to) {
  bytes_of(to).copy_(exchange_and_fold(comm, size_of(comm), op, bytes_of(from)));
}

void bitwise_allreduce(ddl_comm_t comm, Bitwise op, const at::Tensor& from, const at::Tensor& to) {
  const int size = size_of(comm);
  const at::Tensor bytes = bytes_of(from);
  const std::int64_t block = (bytes.numel() + size - 1) / size;
  const at::Tensor padded = at::zeros({block * size}, bytes.options());
  padded.narrow(0, 0, bytes.numel()).copy_(bytes);
  const at::Tensor mine = exchange_and_fold(comm, size, op, padded);
  check(ddl_comm_allgather(comm, mine.const_data_ptr(), padded.data_ptr(), block));
  bytes_of(to).copy_(padded.narrow(0, 0, bytes.numel()));
}

}  // namespace ddl_torch
