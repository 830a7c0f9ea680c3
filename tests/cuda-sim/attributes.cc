// The CUDA runtime: what a device is like, and what is asked but has one answer here.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>

#include "api.h"

namespace {

using sim::call;
using sim::Lock;
using sim::settings;

// Of an imagined GPU; no time depends on them.
constexpr int kMajor = 8;
constexpr int kProcessors = 4;
constexpr int kThreads = 1024;
constexpr int kWarp = 32;
constexpr int kSharedBytes = 48 << 10;

cudaError_t check_device(int device) {
  return device >= 0 && device < settings().devices ? cudaSuccess : cudaErrorInvalidDevice;
}

}  // namespace

API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call([&](Lock&) {
    *value = 0;
    switch (attribute) {
      case cudaDevAttrComputeCapabilityMajor:
        *value = kMajor;
        break;
      case cudaDevAttrMultiProcessorCount:
        *value = kProcessors;
        break;
      case cudaDevAttrMaxThreadsPerBlock:
        *value = kThreads;
        break;
      case cudaDevAttrWarpSize:
        *value = kWarp;
        break;
      default:
        break;
    }
    return check_device(device);
  });
}
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Lock&) {
    cudaDeviceProp& p = *properties;
    std::memset(&p, 0, sizeof(p));
    if (const cudaError_t code = check_device(device); code != cudaSuccess) return code;
    const int number = settings().visible[static_cast<std::size_t>(device)];
    std::snprintf(p.name, sizeof(p.name), "simulated GPU");
    p.uuid.bytes[0] = static_cast<char>(number + 1);
    p.major = kMajor;
    p.totalGlobalMem = settings().memory;
    p.multiProcessorCount = kProcessors;
    p.warpSize = kWarp;
    p.maxThreadsPerBlock = kThreads;
    p.maxThreadsPerMultiProcessor = 2 * kThreads;
    p.sharedMemPerBlock = p.sharedMemPerBlockOptin = p.sharedMemPerMultiprocessor = kSharedBytes;
    p.regsPerBlock = p.regsPerMultiprocessor = 1 << 16;
    p.l2CacheSize = 1 << 22;
    for (int i = 0; i < 3; ++i) {
      p.maxThreadsDim[i] = kThreads;
      p.maxGridSize[i] = 65535;
    }
    p.pciBusID = number + 1;
    p.unifiedAddressing = 1;
    return cudaSuccess;
  });
}
API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&](Lock&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cudaSuccess;
  });
}
API cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  return call([&](Lock&) {
    *can = 0;
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
API cudaError_t cudaStreamGetPriority(cudaStream_t, int* priority) {
  *priority = 0;
  return cudaSuccess;
}
API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                                 unsigned long long,
                                                 cudaDriverEntryPointQueryResult* found) {
  static void* const driver = dlopen("libcuda.so.1", RTLD_LAZY);
  *function = driver != nullptr ? dlsym(driver, name) : nullptr;
  const bool is_there = *function != nullptr;
  if (found != nullptr) {
    *found = is_there ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  }
  return is_there ? cudaSuccess : sim::result(cudaErrorSymbolNotFound);
}
