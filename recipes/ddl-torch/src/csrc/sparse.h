// all_reduce of sparse tensors: the gradients of embeddings, whose rows differ between ranks.
#pragma once

#include <ddl/ddl.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "tensors.h"

namespace ddl_torch {

// Refuses all but sparse COO tensors on the CPU, and every operation but SUM and AVG.
void check_sparse(const char* what, const at::Tensor& tensor, const c10d::ReduceOp& op);

// Replaces `tensor` by the sum, coalesced; the ranks' entries may differ in place and number.
void sparse_allreduce(const char* what, ddl_comm_t comm, const at::Tensor& tensor, bool is_average);

}  // namespace ddl_torch
