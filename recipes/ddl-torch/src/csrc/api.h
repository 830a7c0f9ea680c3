// Which torch this is compiled for: 2.13, or 2.6 (linux-ppc64le). None between is known to work.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

// What 2.6 has not: backends that are split, shut down, aborted, and asked for their options (it
// only lets go of them), and streams of GPUs that can be handed to a library.
#define DDL_TORCH_AT_LEAST_2_13 (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

namespace ddl_torch {

#if DDL_TORCH_AT_LEAST_2_13
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;
#endif

}  // namespace ddl_torch
