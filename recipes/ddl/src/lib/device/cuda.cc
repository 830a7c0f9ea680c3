#include "device/cuda.h"

#include <cuda.h>
#include <dlfcn.h>
#include <nccl.h>

#include <string>

#include "base/error.h"
#include "comm/device_interface.h"

namespace ddl {
namespace {

// The function of the driver. The runtime's own would make a context on the current GPU, but host
// buffers shall cost no GPU memory. Null on a machine without a driver.
using GetAttribute = decltype(&cuPointerGetAttribute);
GetAttribute find_get_attribute() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);  // as the runtime does
  if (driver == nullptr) return nullptr;
  return reinterpret_cast<GetAttribute>(dlsym(driver, "cuPointerGetAttribute"));
}

// False for memory that is not CUDA's, and as long as the program has not begun to use CUDA.
bool get_attribute(void* out, CUpointer_attribute attribute, const void* pointer) {
  static const GetAttribute get = find_get_attribute();
  return get != nullptr &&
         get(out, attribute, reinterpret_cast<CUdeviceptr>(pointer)) == CUDA_SUCCESS;
}

std::string version_of(int major, int minor) { return concat(major, ".", minor); }

}  // namespace

void check_cuda(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // or somebody else would find it
  fail(DDL_ERROR_DEVICE, what, " failed: ", cudaGetErrorString(code));
}

bool is_on_device(const void* pointer) {
  if (pointer == nullptr) return false;
  unsigned int type = CU_MEMORYTYPE_HOST;
  return get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pointer) &&
         type == CU_MEMORYTYPE_DEVICE;
}

int device_of(const void* pointer) {
  int device = 0;
  if (!get_attribute(&device, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, pointer)) {
    fail(DDL_ERROR_DEVICE, "CUDA does not know which GPU a buffer is on");
  }
  return device;
}

const char* cuda_library() {
  static const std::string text =
      concat("CUDA ", version_of(CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10), ", NCCL ",
             version_of(NCCL_MAJOR, NCCL_MINOR), ".", NCCL_PATCH);
  return text.c_str();
}

void check_device_present(const char* function) {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaSuccess && count > 0) return;
  cudaGetLastError();
  fail(DDL_ERROR_ARGUMENT, function, ": no CUDA device here: ",
       code == cudaSuccess                   ? "the driver knows none"
       : code == cudaErrorInsufficientDriver ? "the driver is missing or too old"
                                             : cudaGetErrorString(code),
       "; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or use host memory");
}

Capture capture_on(int device) {
  const CurrentDevice current(device);  // whose default stream it may be
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t code = cudaStreamIsCapturing(static_cast<cudaStream_t>(t_stream), &status);
  if (code == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    return Capture::kLost;
  }
  check_cuda(code, "cudaStreamIsCapturing");
  if (status == cudaStreamCaptureStatusNone) return Capture::kNone;
  return status == cudaStreamCaptureStatusActive ? Capture::kActive : Capture::kLost;
}

void check_not_captured(const char* function, const void* buffer) {
  if (!is_on_device(buffer) || capture_on(device_of(buffer)) == Capture::kNone) return;
  fail(DDL_ERROR_ARGUMENT, function,
       ": the stream is being captured into a CUDA graph, which it cannot be part of; call it "
       "before or after the capture");
}

CurrentDevice::CurrentDevice(int device) {
  check_cuda(cudaGetDevice(&before_), "cudaGetDevice");
  check_cuda(cudaSetDevice(device), "cudaSetDevice");
}

Stream::Stream() {
  check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Event::Event() {
  check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreate");
}

void Event::record(cudaStream_t stream) {
  check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
}

void Event::block(cudaStream_t stream) const {
  check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}

bool Event::has_come() const {
  const cudaError_t code = cudaEventQuery(event_);
  if (code == cudaErrorNotReady) {
    cudaGetLastError();
    return false;
  }
  check_cuda(code, "work on the GPU");
  return true;
}

void* allocate_pinned(std::size_t nbytes) {
  void* data = nullptr;
  check_cuda(cudaMallocHost(&data, nbytes), concat("pinning ", nbytes, " bytes").c_str());
  return data;
}

void* allocate_on_device(std::size_t nbytes) {
  void* data = nullptr;
  check_cuda(cudaMalloc(&data, nbytes), concat("cudaMalloc of ", nbytes, " bytes").c_str());
  return data;
}

}  // namespace ddl
