// The CUDA runtime: streams that are captured into graphs, and graphs that are launched.
#include "graph.h"

#include "api.h"

namespace {

using sim::call;
using sim::Capture;
using sim::Lock;
using sim::machine;

// A cudaGraph_t and a cudaGraphExec_t point to one.
using Graph = std::vector<sim::Node>;

Graph& graph_of(const void* handle) { return *static_cast<Graph*>(const_cast<void*>(handle)); }

bool is_legacy(cudaStream_t handle) { return handle == nullptr || handle == cudaStreamLegacy; }

// Whether a blocking stream of the current device is captured: the default stream would wait for
// it.
bool is_beside_capture() {
  for (const auto& [number, stream] : machine().streams) {
    const bool is_here = stream->device == sim::current_device();
    if (is_here && stream->is_blocking && stream->capture) return true;
  }
  return false;
}

cudaError_t status_of(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  if (is_legacy(handle)) {
    return is_beside_capture() ? cudaErrorStreamCaptureImplicit : cudaSuccess;
  }
  const auto stream = sim::stream_of(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream->capture) {
    *status = stream->capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
  }
  return cudaSuccess;
}

}  // namespace

cudaError_t sim::refuse(const std::shared_ptr<Capture>& capture, cudaError_t code) {
  if (!capture) return cudaSuccess;
  capture->is_invalid = true;
  return code;
}

cudaError_t sim::refuse_unsafe() {
  cudaError_t code = cudaSuccess;
  for (const auto& [number, stream] : machine().streams) {
    if (stream->capture) code = refuse(stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  return code;
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeGlobal) sim::die("only global captures are simulated");
  return call([&](Lock&) {
    if (is_legacy(handle)) return cudaErrorStreamCaptureUnsupported;
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (stream->capture) return cudaErrorIllegalState;
    stream->capture = std::make_shared<Capture>();
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call([&](Lock&) {
    *graph = nullptr;
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    const auto capture = stream->capture;
    if (!capture) return cudaErrorIllegalState;
    for (const auto& [number, other] : machine().streams) {
      if (other->capture == capture) other->capture.reset();
    }
    if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    *graph = reinterpret_cast<cudaGraph_t>(new Graph(std::move(capture->nodes)));
    return cudaSuccess;
  });
}
API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call([&](Lock&) { return status_of(handle, status); });
}
#if CUDART_VERSION >= 13000
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                         unsigned long long* id, cudaGraph_t*,
                                         const cudaGraphNode_t**, const cudaGraphEdgeData**,
                                         std::size_t* count) {
  if (id != nullptr) *id = 0;
  if (count != nullptr) *count = 0;
  return call([&](Lock&) { return status_of(handle, status); });
}
#endif
API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                     unsigned long long) {
  return call([&](Lock&) {
    *executable = reinterpret_cast<cudaGraphExec_t>(new Graph(graph_of(graph)));
    return cudaSuccess;
  });
}
API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return call([&](Lock&) {
    const auto stream = sim::stream_of(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    for (const sim::Node& node : graph_of(executable)) {
      sim::give(*stream, node.what + " of a graph", node.ranges, node.body);
    }
    return cudaSuccess;
  });
}
API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete &graph_of(graph);
  return cudaSuccess;
}
API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete &graph_of(executable);
  return cudaSuccess;
}
