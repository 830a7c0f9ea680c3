// torch's types and reductions in ddl's terms.
#pragma once

#include <ddl/ddl.h>

#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "bitwise.h"
#include "tensors.h"

namespace ddl_torch {

// Reduces a tensor, perhaps in a wider type, since ddl reduces six types only.
class Reduction {
 public:
  // Refuses operations and types that have no meaning here.
  Reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& reduce_op);

  // A contiguous tensor of the type in which to reduce, with the values to reduce: the given one
  // itself where that is possible.
  at::Tensor stage(const at::Tensor& tensor) const;
  // The same without the values.
  at::Tensor stage_empty(const at::Tensor& tensor) const;
  // Copies a staged tensor back into the given one.
  void restore(const at::Tensor& staged, const at::Tensor& tensor) const;

  // Reduces staged tensors over the communicator; `from` and `to` may be the same.
  void allreduce(ddl_comm_t comm, const at::Tensor& from, const at::Tensor& to) const;
  // `from` holds a block like `to` for each rank.
  void reduce_scatter(ddl_comm_t comm, const at::Tensor& from, const at::Tensor& to) const;

 private:
  at::ScalarType type_;  // in which to reduce
  DDL_Type ddl_type_ = DDL_TYPE_INT32;
  DDL_Op op_ = DDL_OP_SUM;
  std::optional<Bitwise> bitwise_;  // instead of these two
  bool is_complex_;
  double factor_ = 1;  // of PREMUL_SUM
};

}  // namespace ddl_torch
