#include "serial_queue.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>
#include <pthread.h>

namespace ddl_torch {

void fail_cancelled(OperationWork& work, const std::string& reason) {
  work.fail(std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, "ddl: " + reason)));
}

SerialQueue::SerialQueue(const std::string& name) : thread_([this, name] { loop(name); }) {}

SerialQueue::~SerialQueue() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SerialQueue::give(c10::intrusive_ptr<OperationWork> work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  changed_.notify_all();
}

bool SerialQueue::drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return waiting_.empty() && !running_; });
}

void SerialQueue::cancel_waiting(const std::string& reason) {
  std::deque<c10::intrusive_ptr<OperationWork>> cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    cancelled.swap(waiting_);
  }
  for (const auto& work : cancelled) fail_cancelled(*work, reason);
}

std::string SerialQueue::current() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return running_ ? running_->title() : "";
}

void SerialQueue::loop(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
  // Operations write into the tensors' memory, without autograd.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    running_ = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    running_->run();
    lock.lock();
    {
      // The work's destruction may want Python's lock, whose holder may be waiting for this mutex.
      c10::intrusive_ptr<OperationWork> done;
      done.swap(running_);
      lock.unlock();
      changed_.notify_all();
    }
    lock.lock();
  }
}

}  // namespace ddl_torch
