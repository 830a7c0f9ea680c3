// The CUDA runtime: devices, streams, events and errors, as its API reference has them.
#include <chrono>
#include <cstdio>
#include <memory>
#include <utility>

#include "api.h"

namespace {

using sim::call;
using sim::Lock;
using sim::machine;
using sim::settings;

thread_local cudaError_t last_error = cudaSuccess;

sim::Event& event_of(cudaEvent_t event) { return *reinterpret_cast<sim::Event*>(event); }

struct Words {
  cudaError_t code;
  const char* name;
  const char* text;
};

constexpr Words kWords[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable",
     "CUDA-capable device(s) is/are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const Words* words_of(cudaError_t code) {
  for (const Words& words : kWords) {
    if (words.code == code) return &words;
  }
  return nullptr;
}

}  // namespace

cudaError_t sim::result(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

cudaError_t sim::check_machine() {
  if (settings().driver < CUDART_VERSION / 1000 * 1000) return cudaErrorInsufficientDriver;
  if (settings().devices == 0) return cudaErrorNoDevice;
  announce();
  return machine().broken;
}

void sim::wait_for_device(Lock& lock) {
  std::vector<std::shared_ptr<sim::Point>> points;
  for (const auto& [number, stream] : machine().streams) {
    if (stream->device == sim::current_device()) points.push_back(stream->last);
  }
  for (const auto& point : points) sim::wait_for(lock, point);
}

// Errors

API cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
API cudaError_t cudaPeekAtLastError() { return last_error; }
API const char* cudaGetErrorString(cudaError_t code) {
  const Words* words = words_of(code);
  return words != nullptr ? words->text : "unrecognized error code";
}
API const char* cudaGetErrorName(cudaError_t code) {
  const Words* words = words_of(code);
  return words != nullptr ? words->name : "unrecognized error code";
}

// Devices

API cudaError_t cudaDriverGetVersion(int* version) {
  *version = settings().driver;
  return cudaSuccess;
}
API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return call([&](Lock&) {
    *count = settings().devices;
    return cudaSuccess;
  });
}
API cudaError_t cudaGetDevice(int* device) {
  return call([&](Lock&) {
    *device = sim::current_device();
    return cudaSuccess;
  });
}
API cudaError_t cudaSetDevice(int device) {
  return call([&](Lock&) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    sim::current_device() = device;
    return cudaSuccess;
  });
}
API cudaError_t cudaDeviceSynchronize() {
  return call([&](Lock& lock) {
    if (const auto code = sim::refuse_unsafe(); code != cudaSuccess) return code;
    sim::wait_for_device(lock);
    return machine().broken;
  });
}
API cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  return call([&](Lock&) {
    if (device < 0 || device >= settings().devices) return cudaErrorInvalidDevice;
    std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0",
                  settings().visible[static_cast<std::size_t>(device)] + 1);
    return cudaSuccess;
  });
}
// Streams

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call([&](Lock&) {
    *stream = sim::open_stream((flags & cudaStreamNonBlocking) == 0);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream || handle == nullptr) return cudaErrorInvalidResourceHandle;
    sim::close_stream(stream);
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return sim::refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
    return sim::has_come(stream->last) ? cudaSuccess : cudaErrorNotReady;
  });
}
API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call([&](Lock& lock) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return sim::refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
    sim::wait_for(lock, stream->last);
    return machine().broken;
  });
}
API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (event_of(event).capture) {
      stream->capture = event_of(event).capture;  // it joins
      return cudaSuccess;
    }
    // Never recorded: nothing to wait for.
    const auto point = event_of(event).point;
    if (point) sim::give(*stream, "cudaStreamWaitEvent", {}, nullptr, point);
    return cudaSuccess;
  });
}
API cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    sim::give(*stream, "cudaLaunchHostFunc", {}, [=] { function(data); });
    return cudaSuccess;
  });
}

// Events

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return call([&](Lock&) {
    *event = reinterpret_cast<cudaEvent_t>(new sim::Event{sim::current_device(), nullptr, nullptr});
    return cudaSuccess;
  });
}
API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call([&](Lock&) {
    delete &event_of(event);
    return cudaSuccess;
  });
}
API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream || stream->device != event_of(event).device) return cudaErrorInvalidResourceHandle;
    event_of(event).capture = stream->capture;
    event_of(event).point = sim::give(*stream, "cudaEventRecord", {}, nullptr);
    return cudaSuccess;
  });
}
API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}
API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call([&](Lock&) {
    const auto from = event_of(begin).point;
    const auto to = event_of(end).point;
    if (!from || !to) return cudaErrorInvalidResourceHandle;
    if (!from->is_done || !to->is_done) return cudaErrorNotReady;
    const std::chrono::duration<float, std::milli> took = to->came - from->came;
    *milliseconds = took.count();
    return cudaSuccess;
  });
}
API cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call([&](Lock&) {
    if (event_of(event).capture)
      return sim::refuse(event_of(event).capture, cudaErrorCapturedEvent);
    return sim::has_come(event_of(event).point) ? cudaSuccess : cudaErrorNotReady;
  });
}
API cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call([&](Lock& lock) {
    if (event_of(event).capture)
      return sim::refuse(event_of(event).capture, cudaErrorCapturedEvent);
    sim::wait_for(lock, event_of(event).point);
    return machine().broken;
  });
}

// For the other libraries of the simulation

API cudaError_t cudasim_give(cudaStream_t handle, const std::string& what,
                             const std::vector<sim::Range>& ranges, std::function<void()> body) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    sim::give(*stream, what, ranges, std::move(body));
    return cudaSuccess;
  });
}
API std::byte* cudasim_alias(const void* pointer) {
  Lock lock(machine().mutex);
  return sim::alias_of(pointer);
}
API int cudasim_kind(const void* pointer, int* device) {
  Lock lock(machine().mutex);
  const sim::Block* block = sim::find(pointer);
  if (block == nullptr) return 0;
  *device = block->device;
  return block->kind == sim::Kind::kDevice ? 2 : 1;
}
API int cudasim_current_device() { return sim::current_device(); }
API cudaError_t cudasim_broken() {
  Lock lock(machine().mutex);
  return machine().broken;
}
API void cudasim_unknown(const char* name) {
  sim::die(std::string("the program calls ") + name + ", which is not simulated");
}
