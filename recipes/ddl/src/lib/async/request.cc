#include "async/request.h"

namespace ddl {

bool Request::is_done() const {
  const std::lock_guard<std::mutex> lock(board_->mutex);
  return outcome_.has_value();
}

void Request::wait() {
  std::unique_lock<std::mutex> lock(board_->mutex);
  if (outcome_) return;
  const Waiting waiting(*board_);
  board_->done.wait(lock, [this] { return outcome_.has_value(); });
}

bool Request::wait_until(Clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(board_->mutex);
  if (outcome_) return true;
  const Waiting waiting(*board_);
  return board_->done.wait_until(lock, deadline, [this] { return outcome_.has_value(); });
}

}  // namespace ddl
