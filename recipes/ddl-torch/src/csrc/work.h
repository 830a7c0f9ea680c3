// One operation under way, on which torch waits or whose future it takes.
#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "completion_pool.h"

namespace ddl_torch {

class OperationWork : public c10d::Work {
 public:
  // The future holds `outputs`: a list of tensors on `device`, or a list of such lists.
  OperationWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                c10::IValue outputs, c10::Device device, std::function<void()> body,
                std::shared_ptr<CompletionPool> completions);

  void run();                           // on the queue's thread; never throws
  void fail(std::exception_ptr error);  // instead of run

  bool wait(std::chrono::milliseconds timeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override;
  std::uint64_t getSequencenumber() const override { return sequence_; }
  const char* title() const { return title_; }
  // The rank that a received message came from, once the operation is done; -1 for all others.
  int sourceRank() const override { return source_ ? source_->load() : -1; }
  void set_source(std::shared_ptr<const std::atomic<int>> source) { source_ = std::move(source); }

 private:
  void complete(const std::exception_ptr& error);
  void settle(const std::exception_ptr& error);

  std::uint64_t sequence_;
  const char* title_;
  std::shared_ptr<const std::atomic<int>> source_;
  c10::IValue outputs_;
  std::function<void()> body_;
  std::shared_ptr<CompletionPool> completions_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::mutex future_mutex_;  // of what follows
  bool is_future_taken_ = false;
};

// Several operations as one, which a coalescing manager returns.
class CoalescedWork : public c10d::Work {
 public:
  CoalescedWork(int rank, std::vector<c10::intrusive_ptr<OperationWork>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;  // the first
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override {}
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override;

 private:
  std::vector<c10::intrusive_ptr<OperationWork>> works_;
};

}  // namespace ddl_torch
