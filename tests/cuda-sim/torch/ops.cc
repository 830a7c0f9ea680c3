// PyTorch's operations on tensors of a simulated GPU: PyTorch's own kernels for the CPU, on the
// same memory, as operations of the current stream. PyTorch itself is unmodified.
#include <ATen/ATen.h>
#include <ATen/ThreadLocalState.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <torch/library.h>

#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "../stream.h"

namespace {

using c10::IValue;
using torch::jit::Stack;
using Ranges = std::vector<sim::Range>;

// The bytes that a tensor's elements lie in, as far as its strides reach.
sim::Range range_of(const at::Tensor& tensor, bool is_write) {
  if (tensor.numel() == 0) return {nullptr, 0, is_write};
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
  return {tensor.const_data_ptr(), static_cast<std::size_t>(last + 1) * tensor.element_size(),
          is_write};
}

// The same elements as a tensor of the host, where the simulation finds them.
at::Tensor host_view(const at::Tensor& tensor) {
  const auto options = tensor.options().device(at::kCPU).pinned_memory(std::nullopt);
  at::Tensor view = tensor.numel() == 0
                        ? at::empty_strided(tensor.sizes(), tensor.strides(), options)
                        : at::from_blob(cudasim_alias(tensor.const_data_ptr()), tensor.sizes(),
                                        tensor.strides(), options);
  if (tensor.is_conj()) view._set_conj(true);
  if (tensor.is_neg()) view._set_neg(true);
  return view;
}

// Gives the current stream of the device an operation, and waits until it has run. For the order of
// the program's work, it has not waited.
void run_in_stream(c10::Device device, const std::string& what, const Ranges& ranges,
                   const std::function<void()>& body) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  std::exception_ptr failure;
  const at::ThreadLocalState state;
  // When the last copy goes, the operation has run, or its GPU was lost before.
  std::shared_ptr<void> end(nullptr, [&](void*) {
    const std::lock_guard<std::mutex> lock(mutex);
    is_done = true;
    changed.notify_all();
  });
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  C10_CUDA_CHECK(cudasim_give(stream, what, ranges, [&, end] {
    const at::ThreadLocalStateGuard guard(state);
    try {
      body();
    } catch (...) {
      failure = std::current_exception();
    }
  }));
  end.reset();
  std::unique_lock<std::mutex> lock(mutex);
  changed.wait(lock, [&] { return is_done; });
  if (failure) std::rethrow_exception(failure);
}

// What a call has to do with GPUs.
struct Arguments {
  std::optional<c10::Device> device;
  Ranges ranges;
  std::vector<std::pair<at::Tensor, at::Tensor>> outputs;  // of the host, of the GPU

  at::Tensor take(const at::Tensor& tensor, bool is_write) {
    if (!tensor.defined() || !tensor.is_cuda()) return tensor;
    if (!device) device = tensor.device();
    if (const sim::Range range = range_of(tensor, is_write); range.nbytes > 0) {
      ranges.push_back(range);
    }
    at::Tensor view = host_view(tensor);
    if (is_write) outputs.emplace_back(view, tensor);
    return view;
  }

  void take(IValue& value, const c10::Argument& argument) {
    const auto* alias = argument.alias_info();
    const bool is_write = alias != nullptr && alias->isWrite();
    if (value.isTensor()) {
      value = take(value.toTensor(), is_write);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(take(tensor, is_write));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        list.push_back(tensor ? std::optional<at::Tensor>(take(*tensor, is_write)) : tensor);
      }
      value = list;
    } else if (value.isDevice() && value.toDevice().is_cuda()) {
      device = value.toDevice();
      value = c10::Device(c10::kCPU);
    } else if (value.isGenerator() && value.toGenerator().device().is_cuda()) {
      value = IValue();
    } else if (argument.name() == "pin_memory") {
      value = IValue();
    }
  }
};

void write(const at::Tensor& from, const at::Tensor& to) {
  if (from.numel() == 0) return;
  std::byte* target = cudasim_alias(to.const_data_ptr());
  const void* source = from.const_data_ptr();
  const std::size_t nbytes = from.nbytes();
  run_in_stream(to.device(), "a result of an operation", {range_of(to, true)},
                [=] { std::memcpy(target, source, nbytes); });
}

at::Tensor to_gpu(const at::Tensor& tensor, c10::Device device) {
  if (!tensor.defined() || !tensor.is_cpu()) return tensor;
  const at::Tensor dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  const at::Tensor made =
      at::empty_strided(dense.sizes(), dense.strides(), dense.options().device(device));
  write(dense, made);
  return made;
}

// The argument that a result is, as the schema says by the alias.
const IValue* argument_of(const c10::Argument& result, const c10::FunctionSchema& schema,
                          const std::vector<IValue>& before) {
  const auto* alias = result.alias_info();
  if (alias == nullptr || !alias->isWrite()) return nullptr;
  for (std::size_t i = 0; i < before.size(); ++i) {
    const auto* other = schema.arguments()[i].alias_info();
    if (other != nullptr && other->isWrite() && other->beforeSets() == alias->beforeSets()) {
      return &before[i];
    }
  }
  return nullptr;
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const auto& schema = op.schema();
  const std::size_t count = schema.arguments().size();
  const std::size_t base = stack->size() - count;
  const std::vector<IValue> before(stack->begin() + static_cast<std::ptrdiff_t>(base),
                                   stack->end());
  Arguments arguments;
  for (std::size_t i = 0; i < count; ++i) {
    arguments.take((*stack)[base + i], schema.arguments()[i]);
  }
  const c10::Device device =
      arguments.device.value_or(c10::Device(c10::kCUDA, c10::cuda::current_device()));
  const c10::cuda::CUDAGuard current(device);  // the default stream is the current GPU's
  run_in_stream(device, schema.name(), arguments.ranges, [&] { op.callBoxed(stack); });
  for (const auto& [host, gpu] : arguments.outputs) {
    if (host.sizes() == gpu.sizes() && host.const_data_ptr() == cudasim_alias(gpu.const_data_ptr()))
      continue;
    const at::Tensor dense = host.contiguous();  // it has another size now
    gpu.resize_(dense.sizes());
    write(dense, gpu);
  }
  const std::size_t results = schema.returns().size();
  for (std::size_t i = 0; i < results; ++i) {
    IValue& value = (*stack)[stack->size() - results + i];
    const c10::Argument& result = schema.returns()[i];
    if (const IValue* argument = argument_of(result, schema, before)) {
      value = *argument;
    } else if (value.isTensor()) {
      value = to_gpu(value.toTensor(), device);
    } else if (value.isTensorList()) {
      std::vector<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorVector())
        list.push_back(to_gpu(tensor, device));
      value = list;
    } else {
      // A number for the program: it has waited.
      C10_CUDA_CHECK(
          cudaStreamSynchronize(c10::cuda::getCurrentCUDAStream(device.index()).stream()));
    }
  }
}

bool is_dense_pair(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.is_contiguous() &&
         b.is_contiguous() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Between the host and a GPU, or two GPUs: the runtime's own copy, which the program may or may not
// wait for.
at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.numel() == 0) return to;
  const c10::Device device = to.is_cuda() ? to.device() : from.device();
  const c10::cuda::CUDAGuard current(device);  // the default stream is the current GPU's
  if (to.is_cuda() && from.is_cuda() && to.device() == from.device()) {
    const at::Tensor target = host_view(to);
    const at::Tensor source = host_view(from);
    run_in_stream(device, "aten::copy_", {range_of(from, false), range_of(to, true)},
                  [&] { target.copy_(source); });
    return to;
  }
  if (!is_dense_pair(to, from)) {
    const at::Tensor dense = from.to(to.scalar_type()).expand(to.sizes()).contiguous();
    at::Tensor there =
        at::empty(to.sizes(), to.options().memory_format(at::MemoryFormat::Contiguous));
    copy(there, dense, false);
    return to.copy_(there);
  }
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const auto kind = !to.is_cuda()     ? cudaMemcpyDeviceToHost
                    : !from.is_cuda() ? cudaMemcpyHostToDevice
                                      : cudaMemcpyDeviceToDevice;
  C10_CUDA_CHECK(
      cudaMemcpyAsync(to.mutable_data_ptr(), from.const_data_ptr(), to.nbytes(), kind, stream));
  if (!non_blocking) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  return to;
}

// Those that only make, resize or describe a tensor.
bool is_own(const std::string& name) {
  static const std::set<std::string> names{
      "empty",         "empty_strided",   "set_",      "resize_",
      "record_stream", "_pin_memory",     "is_pinned", "_efficientzerotensor",
      "is_set_to",     "_resize_output_", "copy_"};
  return names.count(name) != 0;
}

bool is_view(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info() != nullptr && !result.alias_info()->isWrite()) return true;
  }
  return false;
}

struct Operations {
  torch::Library library{torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__};

  Operations() {
    const auto key = c10::DispatchKey::CUDA;
    for (const auto& name : c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key)) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      const std::string bare = name.name.substr(6);
      const auto op = c10::Dispatcher::singleton().findSchema(name);
      if (is_own(bare) || !op || is_view(op->schema())) continue;
      const std::string full = name.overload_name.empty() ? bare : bare + "." + name.overload_name;
      library.impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&run>());
    }
    // PyTorch has no kernel of these for GPUs: it takes the tensors to cuDNN's functions itself.
    for (const char* name : {"convolution", "convolution_backward"}) {
      library.impl(name, torch::CppFunction::makeFromBoxedFunction<&run>());
    }
    library.impl("copy_", copy);
  }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void cudasim_take_operations() {
  static auto* const all = new Operations;
  static_cast<void>(all);
}
