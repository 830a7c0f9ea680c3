// Puts an operation, which runs on a queue's thread, in order with the streams of its tensors' GPU.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>

namespace ddl_torch {

// The device of the first tensor that is not on the CPU; the CPU when there is none.
c10::Device device_of(const c10::IValue& tensors);

// Made where an operation is asked for, and run on its queue's thread. For the CPU it only runs the
// body. It names no GPU library: one build serves a torch with CUDA and one without.
class StreamOrder {
 public:
  // Records the work that the current stream of `device` has been given so far.
  explicit StreamOrder(c10::Device device);

  // Runs `body` after that work, with a stream of this thread as the current one, and returns when
  // the GPU is done: the result is then there for all streams.
  void run(const std::function<void()>& body) const;

 private:
  c10::Device device_;
  std::shared_ptr<c10::Event> asked_;  // shared: a std::function is copied
};

}  // namespace ddl_torch
