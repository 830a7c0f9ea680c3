#include "sparse.h"

#include <algorithm>

#include "error.h"

namespace ddl_torch {
namespace {

// Every rank's `from`, which has `rows` rows; all are padded to the most that any rank has.
Tensors gather_rows(ddl_comm_t comm, const at::Tensor& from,
                    const std::vector<std::int64_t>& rows) {
  const std::int64_t most = *std::max_element(rows.begin(), rows.end());
  std::vector<std::int64_t> shape = from.sizes().vec();
  shape.at(0) = most;
  const at::Tensor padded = at::zeros(shape, from.options());
  padded.narrow(0, 0, from.size(0)).copy_(from);
  shape.insert(shape.begin(), static_cast<std::int64_t>(rows.size()));
  const at::Tensor all = at::empty(shape, from.options());
  check(ddl_comm_allgather(comm, padded.const_data_ptr(), all.data_ptr(), padded.nbytes()));
  Tensors parts;
  for (std::size_t rank = 0; rank < rows.size(); ++rank) {
    parts.push_back(all[static_cast<std::int64_t>(rank)].narrow(0, 0, rows[rank]));
  }
  return parts;
}

// The number of entries on each rank. Refuses tensors of different shapes: on all ranks alike.
std::vector<std::int64_t> exchange_counts(const char* what, ddl_comm_t comm,
                                          const at::Tensor& tensor) {
  int size = 0;
  check(ddl_comm_size(comm, &size));
  std::uint64_t shape = 14695981039346656037u;  // FNV-1a: ranks may differ in its length too
  for (const std::int64_t n : tensor.sizes()) {
    shape = (shape ^ static_cast<std::uint64_t>(n)) * 1099511628211u;
  }
  std::vector<std::int64_t> mine{tensor._nnz(), tensor.sparse_dim(), tensor.dense_dim(),
                                 static_cast<std::int64_t>(tensor.scalar_type()),
                                 static_cast<std::int64_t>(shape)};
  std::vector<std::int64_t> all(mine.size() * size);
  check(ddl_comm_allgather(comm, mine.data(), all.data(), mine.size() * sizeof(std::int64_t)));
  std::vector<std::int64_t> counts;
  for (auto one = all.begin(); one != all.end(); one += static_cast<std::ptrdiff_t>(mine.size())) {
    if (!std::equal(one + 1, one + static_cast<std::ptrdiff_t>(mine.size()), all.begin() + 1)) {
      refuse(c10::str(what, ": the ranks' sparse tensors differ in shape or type; ",
                      "all must be alike but for their entries"));
    }
    counts.push_back(*one);
  }
  return counts;
}

}  // namespace

void check_sparse(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_device(what, tensor);
  if (tensor.layout() != at::kSparse) {
    refuse(c10::str(what, ": of the sparse layouts only COO is supported; ",
                    "call to_sparse_coo() or to_dense() first"));
  }
  if (op.op_ != c10d::ReduceOp::SUM && op.op_ != c10d::ReduceOp::AVG) {
    refuse(c10::str(what, ": sparse tensors can be summed and averaged only; ",
                    "call to_dense() first"));
  }
  if (op.op_ == c10d::ReduceOp::AVG &&
      at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true)) {
    refuse(c10::str(what, ": the average of integers (", tensor.scalar_type(), ") is not one; ",
                    "sum and divide, or use a floating-point type"));
  }
}

void sparse_allreduce(const char* what, ddl_comm_t comm, const at::Tensor& tensor,
                      bool is_average) {
  const at::Tensor own = tensor.coalesce();
  const std::vector<std::int64_t> counts = exchange_counts(what, comm, own);
  // Indices are columns; entries are to be rows, as the values are.
  const Tensors indices = gather_rows(comm, own._indices().t().contiguous(), counts);
  const Tensors values = gather_rows(comm, own._values().contiguous(), counts);
  at::Tensor total = at::_sparse_coo_tensor_unsafe(at::cat(indices).t().contiguous(),
                                                   at::cat(values), own.sizes(), own.options())
                         .coalesce();
  if (is_average) total._values().div_(static_cast<double>(counts.size()));
  tensor.copy_(total);
}

}  // namespace ddl_torch
