// Lanes and torch's streams: what runs on a lane's thread is in order with the tensors' GPU.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>

namespace ddl_torch {

// Of the first tensor; the CPU when there is none.
c10::Device device_of(const c10::IValue& tensors);

// Made where an operation is asked for, and run on the lane's thread. For the CPU it does nothing
// special. It names no GPU library: the same build serves a torch with CUDA and one without.
class StreamOrder {
 public:
  // Notes how far the current stream of `device` has been given work.
  explicit StreamOrder(c10::Device device);

  // Runs `body` after that work, with a stream of this thread as the current one, and returns when
  // the GPU is done: the result is then there for all streams.
  void run(const std::function<void()>& body) const;

 private:
  c10::Device device_;
  std::shared_ptr<c10::Event> asked_;  // shared: a std::function is copied
};

}  // namespace ddl_torch
