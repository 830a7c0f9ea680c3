// Which torch this is compiled for: 2.13, or 2.6 (linux-ppc64le). No version between is known to
// work.
#pragma once

#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

// 2.13 splits, shuts down and aborts backends, and asks for their options; 2.6 only lets go of
// them.
#define DDL_TORCH_MANAGED (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 13)

namespace ddl_torch {

#if DDL_TORCH_MANAGED
using PreMulSum = c10d::PreMulSumSupplement;
#else
using PreMulSum = c10d::NCCLPreMulSumSupplement;
#endif

}  // namespace ddl_torch
