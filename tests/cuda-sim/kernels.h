// What a library of kernels compiled for the host gives the simulation.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "stream.h"

namespace sim {

// An operation for a stream: what it uses, and how it runs.
struct Launch {
  std::string what;
  std::vector<Range> ranges;
  std::function<void()> body;
};

using Kernel = std::function<Launch(dim3 grid, void** arguments)>;

// `cudasim_find_kernel` of the library: by the name that the compiler gave it; null if it has none.
using FindKernel = const Kernel*(const std::string& name);

}  // namespace sim
