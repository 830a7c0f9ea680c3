// The versions of torch that this compiles for: 2.13, and 2.6 (linux-ppc64le). No other version is
// known to work.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

// torch 2.6 does not split backends, shut them down, abort them or ask for their options: it only
// lets go of them. Nor can it hand the stream of a GPU to a library.
#define DDL_TORCH_AT_LEAST_2_13 (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

namespace ddl_torch {

#if DDL_TORCH_AT_LEAST_2_13
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;
#endif

}  // namespace ddl_torch
