// One operation under way: torch waits on it, or takes its future.
#pragma once

#include <ATen/core/ivalue.h>

#include <functional>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace ddl_torch {

class OperationWork : public c10d::Work {
 public:
  // `outputs` is what the future holds: a list of tensors, or a list of such lists.
  OperationWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                c10::IValue outputs, std::function<void()> body);

  void run();                           // on the lane's thread; never throws
  void fail(std::exception_ptr error);  // instead of run

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  std::vector<at::Tensor> result() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  const char* title() const { return title_; }

 private:
  std::uint64_t sequence_;
  const char* title_;
  c10::IValue outputs_;
  std::function<void()> body_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace ddl_torch
