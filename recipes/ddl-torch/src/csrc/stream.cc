#include "stream.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <ddl/ddl.h>

#include <optional>

#include "api.h"
#include "error.h"

namespace ddl_torch {
namespace {

using c10::impl::VirtualGuardImpl;

#if DDL_TORCH_AT_LEAST_2_13
// One for each thread, so that a queue's staging buffers can be used again.
c10::Stream own_stream(c10::Device device) {
  thread_local std::optional<c10::Stream> stream;
  if (!stream || stream->device() != device) {
    stream = VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  }
  return *stream;
}
#endif

}  // namespace

c10::Device device_of(const c10::IValue& tensors) {
  if (tensors.isTensor() && tensors.toTensor().defined()) return tensors.toTensor().device();
  if (tensors.isList()) {
    for (const c10::IValue& element : tensors.toListRef()) {
      const c10::Device device = device_of(element);
      if (!device.is_cpu()) return device;
    }
  }
  return c10::kCPU;
}

StreamOrder::StreamOrder(c10::Device device) : device_(device) {
  if (device_.is_cpu()) return;
  const c10::DeviceGuard on_device(device_);
  const VirtualGuardImpl guard(device_.type());
  const c10::Stream stream = guard.getStream(device_);
#if DDL_TORCH_AT_LEAST_2_13
  if (guard.isStreamCapturing(stream)) {  // another thread's stream would join it, and never leave
    refuse(
        "its stream is being captured into a CUDA graph, which ddl.allreduce can be part of alone");
  }
#endif
  asked_ = std::make_shared<c10::Event>(device_.type());
  asked_->record(stream);
}

void StreamOrder::run(const std::function<void()>& body) const {
  if (device_.is_cpu()) return body();
#if DDL_TORCH_AT_LEAST_2_13
  const c10::Stream stream = own_stream(device_);
  const c10::StreamGuard on_stream(stream);  // and its device
  asked_->block(stream);
  check(ddl_set_stream(stream.native_handle()));
  body();
  stream.synchronize();
#else
  refuse("tensors on GPUs need PyTorch 2.13");
#endif
}

}  // namespace ddl_torch
