// Horovod's own kernels, run on the host. HOROVOD_KERNELS is the file of their source, from which
// the configurations of launches, <<<...>>>, are taken: what is left is C++.
#include "../kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <unordered_map>
#include <vector>

namespace {
thread_local dim3 grid_dimensions, block_dimensions;
thread_local uint3 block_index, thread_index;
}  // namespace

#undef __global__
#undef __device__
#define __global__
#define __device__
#define gridDim grid_dimensions
#define blockDim block_dimensions
#define blockIdx block_index
#define threadIdx thread_index
#include HOROVOD_KERNELS

// What launches kernels asks for it, and nothing calls that here.
const std::string& horovod::common::DataType_Name(DataType) { std::abort(); }

namespace {

using namespace horovod::common;

// The kernels go on by the size of the grid, so fewer threads do the same. Copies need 16 at least:
// each takes one of the bytes that are left over.
constexpr unsigned kThreads = 16;

template <typename Call>
void run_threads(const dim3& grid, Call call) {
  grid_dimensions = grid;
  block_dimensions = dim3(kThreads);
  for (block_index.x = 0; block_index.x < grid.x; ++block_index.x) {
    for (thread_index.x = 0; thread_index.x < kThreads; ++thread_index.x) call();
  }
}

template <typename T>
T argument(void** arguments, int i) {
  return *static_cast<T*>(arguments[i]);
}

// A copy of several blocks, whose addresses are among the arguments.
template <typename Call>
sim::Launch copies(const char* what, const dim3& grid, void** arguments, Call call) {
  auto parameters = argument<BatchedD2DParams>(arguments, 0);
  sim::Launch made{what, {}, nullptr};
  const unsigned count = grid.x / BLOCKS_PER_COPY_D2D_KERNEL;
  for (unsigned i = 0; i < count; ++i) {
    const std::size_t nbytes = parameters.sizes[i];
    if (nbytes == 0) continue;
    made.ranges.push_back({parameters.in[i], nbytes, false});
    made.ranges.push_back({parameters.out[i], nbytes, true});
    // Both mappings begin with a page: the address says as much of the alignment.
    parameters.in[i] = cudasim_alias(parameters.in[i]);
    parameters.out[i] = cudasim_alias(parameters.out[i]);
  }
  made.body = [grid, parameters, call] { run_threads(grid, [&] { call(parameters); }); };
  return made;
}

template <typename T, typename TS, typename Call>
sim::Launch scaling(const char* what, const dim3& grid, void** arguments, Call call) {
  const auto* input = argument<const T*>(arguments, 0);
  auto* output = argument<T*>(arguments, 1);
  const auto count = argument<std::int64_t>(arguments, 2);
  const auto factor = argument<TS>(arguments, 3);
  const std::size_t nbytes = static_cast<std::size_t>(count) * sizeof(T);
  const auto* from = reinterpret_cast<const T*>(cudasim_alias(input));
  auto* to = reinterpret_cast<T*>(cudasim_alias(output));
  return {what, {{input, nbytes, false}, {output, nbytes, true}}, [=] {
            run_threads(grid, [&] { call(from, to, count, factor); });
          }};
}

using Kernels = std::unordered_map<std::string, sim::Kernel>;

template <typename Function>
void add(Kernels& all, Function* function, sim::Kernel kernel) {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(function), &info) == 0 || info.dli_sname == nullptr) {
    std::abort();  // linked without the names of its functions
  }
  all[info.dli_sname] = std::move(kernel);
}

template <typename T, typename TS>
void add_for(Kernels& all) {
  add(all, scale_buffer_k<T, TS>, [](const dim3& grid, void** arguments) {
    return scaling<T, TS>("scale_buffer_k", grid, arguments, scale_buffer_k<T, TS>);
  });
  constexpr int kBlocks = BLOCKS_PER_COPY_D2D_KERNEL;
  add(all, batched_scaled_memcpy_k<T, kBlocks, TS>, [](const dim3& grid, void** arguments) {
    const auto factor = argument<TS>(arguments, 1);
    return copies("batched_scaled_memcpy_k", grid, arguments, [factor](const auto& parameters) {
      batched_scaled_memcpy_k<T, kBlocks, TS>(parameters, factor);
    });
  });
}

Kernels make_kernels() {
  Kernels all;
  add_for<std::uint8_t, IntegerFactor>(all);
  add_for<std::int8_t, IntegerFactor>(all);
  add_for<std::int32_t, IntegerFactor>(all);
  add_for<std::int64_t, IntegerFactor>(all);
  add_for<__half, float>(all);
  add_for<__nv_bfloat16, float>(all);
  add_for<float, float>(all);
  add_for<double, double>(all);
  add(all, scale_buffer_half2_k, [](const dim3& grid, void** arguments) {
    return scaling<__half, float>("scale_buffer_half2_k", grid, arguments, scale_buffer_half2_k);
  });
  constexpr int kBlocks = BLOCKS_PER_COPY_D2D_KERNEL;
  add(all, batched_memcpy_k<kBlocks>, [](const dim3& grid, void** arguments) {
    return copies("batched_memcpy_k", grid, arguments, batched_memcpy_k<kBlocks>);
  });
  return all;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const sim::Kernel* cudasim_find_kernel(
    const std::string& name) {
  static const Kernels all = make_kernels();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}
