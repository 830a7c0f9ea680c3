// BAND, BOR and BXOR, which ddl does not reduce: the ranks exchange blocks, and each folds its own.
#pragma once

#include <ddl/ddl.h>

#include "tensors.h"

namespace ddl_torch {

enum class Bitwise { kAnd, kOr, kXor };

// Contiguous integers; `from` and `to` may be the same.
void bitwise_allreduce(ddl_comm_t comm, Bitwise op, const at::Tensor& from, const at::Tensor& to);
// `from` holds a block like `to` for each rank.
void bitwise_reduce_scatter(ddl_comm_t comm, Bitwise op, const at::Tensor& from,
                            const at::Tensor& to);

}  // namespace ddl_torch
