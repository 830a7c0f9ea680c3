#include "work.h"

#include <algorithm>
#include <atomic>

namespace ddl_torch {
namespace {

// The devices for a future, which does not count the CPU.
std::vector<c10::Device> devices_of(c10::Device device) {
  return device.is_cpu() ? std::vector<c10::Device>() : std::vector<c10::Device>{device};
}

}  // namespace

OperationWork::OperationWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                             c10::IValue outputs, c10::Device device, std::function<void()> body,
                             std::shared_ptr<CompletionPool> completions)
    : c10d::Work(rank, type, title),
      sequence_(sequence),
      title_(title),
      outputs_(std::move(outputs)),
      body_(std::move(body)),
      completions_(std::move(completions)),
      future_(c10::make_intrusive<c10::ivalue::Future>(outputs_.type(), devices_of(device))) {}

void OperationWork::run() {
  std::exception_ptr error;
  try {
    body_();
  } catch (...) {
    error = std::current_exception();
  }
  complete(error);
}

void OperationWork::fail(std::exception_ptr error) { complete(error); }

void OperationWork::complete(const std::exception_ptr& error) {
  body_ = nullptr;  // its staging buffers are not needed until somebody drops the work
  bool is_taken = false;
  {
    const std::lock_guard<std::mutex> lock(future_mutex_);
    is_taken = is_future_taken_;
    if (!is_taken) settle(error);  // nobody has it, so nothing can hang on it
  }
  if (is_taken) {
    const auto self = c10::intrusive_ptr<OperationWork>::reclaim_copy(this);
    completions_->give([self, error] { self->settle(error); });
  }
  finish(error);
}

void OperationWork::settle(const std::exception_ptr& error) {
  if (error) {
    future_->setError(error);
  } else {
    future_->markCompleted(outputs_);
  }
}

bool OperationWork::wait(std::chrono::milliseconds timeout) {
  const bool is_done = c10d::Work::wait(timeout);
  future_->wait();  // it follows in a moment, and who has waited may ask for its value
  return is_done;
}

c10::intrusive_ptr<c10::ivalue::Future> OperationWork::getFuture() {
  const std::lock_guard<std::mutex> lock(future_mutex_);
  is_future_taken_ = true;
  return future_;
}

std::vector<at::Tensor> OperationWork::result() {
  return outputs_.isTensorList() ? outputs_.toTensorVector() : std::vector<at::Tensor>();
}

CoalescedWork::CoalescedWork(int rank, std::vector<c10::intrusive_ptr<OperationWork>> works)
    : c10d::Work(rank, c10d::OpType::COALESCED), works_(std::move(works)) {}

bool CoalescedWork::isCompleted() {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isCompleted(); });
}

bool CoalescedWork::isSuccess() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const auto& work) { return work->isSuccess(); });
}

std::exception_ptr CoalescedWork::exception() const {
  for (const auto& work : works_) {
    if (const auto error = work->exception()) return error;
  }
  return nullptr;
}

bool CoalescedWork::wait(std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  bool is_done = true;
  for (const auto& work : works_) {
    auto left = timeout;
    if (timeout != kNoTimeout) {  // 0 would mean for ever
      left = std::max(std::chrono::milliseconds(1),
                      std::chrono::duration_cast<std::chrono::milliseconds>(
                          deadline - std::chrono::steady_clock::now()));
    }
    is_done = work->wait(left) && is_done;
  }
  return is_done;
}

c10::intrusive_ptr<c10::ivalue::Future> CoalescedWork::getFuture() {
  using c10::ivalue::Future;
  std::vector<c10::intrusive_ptr<Future>> futures;
  for (const auto& work : works_) futures.push_back(work->getFuture());
  std::vector<c10::Device> devices;
  for (const auto& future : futures) {
    if (!future->devices().empty()) devices = future->devices();  // a group has one at most
  }
  auto all = c10::make_intrusive<Future>(c10::ListType::ofTensors(), devices);
  const auto left = std::make_shared<std::atomic<std::size_t>>(futures.size());
  const auto tensors = result();
  // collectAll does not serve: it wants futures of one type, and hides errors.
  for (const auto& future : futures) {
    future->addCallback([all, futures, left, tensors](Future&) {
      if (left->fetch_sub(1) > 1) return;
      for (const auto& each : futures) {
        if (each->hasError()) return all->setError(each->exception_ptr());
      }
      all->markCompleted(tensors);
    });
  }
  if (futures.empty()) all->markCompleted(tensors);
  return all;
}

std::vector<at::Tensor> CoalescedWork::result() {
  std::vector<at::Tensor> tensors;
  for (const auto& work : works_) {
    for (const at::Tensor& tensor : work->result()) tensors.push_back(tensor);
  }
  return tensors;
}

}  // namespace ddl_torch
