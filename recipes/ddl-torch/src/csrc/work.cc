#include "work.h"

namespace ddl_torch {

OperationWork::OperationWork(int rank, c10d::OpType type, std::uint64_t sequence, const char* title,
                             c10::IValue outputs, std::function<void()> body)
    : c10d::Work(rank, type, title),
      sequence_(sequence),
      title_(title),
      outputs_(std::move(outputs)),
      body_(std::move(body)),
      future_(c10::make_intrusive<c10::ivalue::Future>(outputs_.type())) {}

void OperationWork::run() {
  try {
    body_();
  } catch (...) {
    fail(std::current_exception());
    return;
  }
  body_ = nullptr;  // its staging buffers are not needed until somebody drops the work
  future_->markCompleted(outputs_);
  finish();
}

void OperationWork::fail(std::exception_ptr error) {
  body_ = nullptr;
  future_->setError(error);
  finish(error);
}

std::vector<at::Tensor> OperationWork::result() {
  return outputs_.isTensorList() ? outputs_.toTensorVector() : std::vector<at::Tensor>();
}

}  // namespace ddl_torch
