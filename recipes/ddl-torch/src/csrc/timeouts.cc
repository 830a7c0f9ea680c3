#include "timeouts.h"

#include <ddl/ddl.h>

#include <algorithm>

namespace ddl_torch {
namespace {

constexpr double kGivenUp = -1;  // see ddl_use_timeout

}  // namespace

void Timeouts::cancel() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_cancelled_ = true;
  const double given_up = kGivenUp;
  for (double* seconds : running_) __atomic_store(seconds, &given_up, __ATOMIC_RELAXED);
}

bool Timeouts::is_cancelled() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_cancelled_;
}

Timeouts::Scope::Scope(Timeouts& timeouts, std::chrono::milliseconds timeout)
    : timeouts_(timeouts), seconds_(std::min(std::chrono::duration<double>(timeout).count(), 1e9)) {
  {
    const std::lock_guard<std::mutex> lock(timeouts_.mutex_);
    if (timeouts_.is_cancelled_) seconds_ = kGivenUp;
    timeouts_.running_.push_back(&seconds_);
  }
  ddl_use_timeout(&seconds_);
}

Timeouts::Scope::~Scope() {
  ddl_use_timeout(nullptr);
  const std::lock_guard<std::mutex> lock(timeouts_.mutex_);
  auto& running = timeouts_.running_;
  running.erase(std::find(running.begin(), running.end(), &seconds_));
}

}  // namespace ddl_torch
