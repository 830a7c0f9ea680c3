// torch's types and reductions in ddl's terms.
#pragma once

#include <ddl/ddl.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "tensors.h"

namespace ddl_torch {

// How a tensor is reduced: perhaps in a wider type, since ddl reduces six types only.
struct Reduction {
  at::ScalarType type;  // in which to reduce
  DDL_Type ddl_type;
  DDL_Op op;
  bool is_complex;

  // Refuses operations and types that have no meaning here.
  Reduction(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& reduce_op);

  // A contiguous tensor of `type` with the values: the given one itself where that is possible.
  at::Tensor stage(const at::Tensor& tensor) const;
  // The same without the values.
  at::Tensor stage_empty(const at::Tensor& tensor) const;
  // From a staged tensor back into the given one.
  void restore(const at::Tensor& staged, const at::Tensor& tensor) const;
};

}  // namespace ddl_torch
