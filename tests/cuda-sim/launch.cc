// Kernels: programs register them when they are loaded. None can run here.
#include <mutex>
#include <string>
#include <unordered_map>

#include "api.h"

namespace {

std::unordered_map<const void*, std::string>& kernels() {
  static auto* const all = new std::unordered_map<const void*, std::string>;
  return *all;
}

std::mutex mutex;

[[noreturn]] cudaError_t refuse(const void* function) {
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = kernels().find(function);
  const std::string name = found == kernels().end() ? "without a name" : found->second;
  sim::die("the program launches the kernel " + name + ", which is not simulated");
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

API unsigned __cudaPushCallConfiguration(dim3, dim3, std::size_t, void*) { return 0; }
API cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, std::size_t*, void*) {
  return cudaSuccess;
}
API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
API cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void**, std::size_t,
                                 cudaStream_t) {
  refuse(function);
}
API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void**, std::size_t,
                                   cudaStream_t) {
  refuse(kernel);
}
