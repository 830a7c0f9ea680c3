// Kernels: programs register them when they are loaded. What CUDASIM_KERNELS has compiled for the
// host runs; none else can.
#include <dlfcn.h>

#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "api.h"
#include "kernels.h"

namespace {

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared;
  void* stream;
};

// What <<<...>>> said, until the kernel's own function asks.
thread_local std::vector<Configuration> configurations;

std::unordered_map<const void*, std::string>& kernels() {
  static auto* const all = new std::unordered_map<const void*, std::string>;
  return *all;
}

std::mutex mutex;

std::string name_of(const void* function) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = kernels().find(function);
  return found == kernels().end() ? "without a name" : found->second;
}

sim::FindKernel* find_function() {
  const char* path = std::getenv("CUDASIM_KERNELS");
  if (path == nullptr || *path == '\0') return nullptr;
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) sim::die(std::string("CUDASIM_KERNELS: ") + dlerror());
  return reinterpret_cast<sim::FindKernel*>(dlsym(library, "cudasim_find_kernel"));
}

cudaError_t launch(const void* function, const dim3& grid, const dim3& block, void** arguments,
                   cudaStream_t stream) {
  static sim::FindKernel* const find = find_function();
  static std::uint64_t launched = 0;
  const std::string name = name_of(function);
  const sim::Kernel* kernel = find == nullptr ? nullptr : find(name);
  if (kernel == nullptr) {
    sim::die("the program launches the kernel " + name + ", which is not simulated");
  }
  if (grid.x * grid.y * grid.z == 0 || block.x * block.y * block.z == 0) {
    return sim::result(cudaErrorInvalidConfiguration);
  }
  const sim::Fault& fault = sim::settings().fault;
  if (fault.kind == "launch") {
    const std::lock_guard<std::mutex> lock(mutex);
    if (++launched == fault.at) return sim::result(cudaErrorLaunchOutOfResources);
  }
  sim::Launch made = (*kernel)(grid, arguments);
  return cudasim_give(stream, made.what, made.ranges, std::move(made.body));
}

}  // namespace

API void** __cudaRegisterFatBinary(void*) {
  static void* handle[4];
  return handle;
}
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API void __cudaRegisterFunction(void**, const char* function, char*, const char* name, int, uint3*,
                                uint3*, dim3*, dim3*, int*) {
  const std::lock_guard<std::mutex> lock(mutex);
  kernels()[function] = name;
}
API void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}
API char __cudaInitModule(void**) { return 1; }

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, void* stream) {
  configurations.push_back({grid, block, shared, stream});
  return 0;
}
API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared,
                                           void* stream) {
  const Configuration last = configurations.back();
  configurations.pop_back();
  *grid = last.grid;
  *block = last.block;
  *shared = last.shared;
  *static_cast<void**>(stream) = last.stream;
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                                 std::size_t, cudaStream_t stream) {
  return launch(function, grid, block, arguments, stream);
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                                   std::size_t, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, stream);
}
