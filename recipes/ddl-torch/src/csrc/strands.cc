#include "strands.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <pthread.h>

#include "serial_queue.h"

namespace ddl_torch {
namespace {

// Threads that stay for the next operation. As many more begin as operations block at a time.
constexpr int kMostIdle = 2;

}  // namespace

Strands::~Strands() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return queues_.empty(); });
  is_closing_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return threads_.empty(); });
  lock.unlock();
  for (std::thread& thread : ended_) thread.join();
}

void Strands::give(const Key& key, c10::intrusive_ptr<OperationWork> work) {
  std::list<std::thread> ended;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [queue, is_new] = queues_.try_emplace(key);
    queue->second.push_back(std::move(work));
    if (is_new) {
      ready_.push_back(key);
      if (static_cast<int>(ready_.size()) > num_idle_) {
        const auto self = threads_.emplace(threads_.end());
        *self = std::thread([this, self] { loop(self); });
      }
    }
    ended.swap(ended_);
  }
  changed_.notify_all();
  for (std::thread& thread : ended) thread.join();
}

bool Strands::drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return queues_.empty(); });
}

void Strands::cancel_waiting(const std::string& reason) {
  Queue cancelled;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ready_.clear();
    for (auto entry = queues_.begin(); entry != queues_.end();) {
      Queue& queue = entry->second;
      // A null stands for the operation that runs: its thread takes it out.
      const bool is_running = !queue.empty() && !queue.front();
      for (auto& work : queue) {
        if (work) cancelled.push_back(std::move(work));
      }
      queue.clear();
      if (is_running) queue.emplace_back();
      entry = is_running ? std::next(entry) : queues_.erase(entry);
    }
  }
  changed_.notify_all();
  for (const auto& work : cancelled) fail_cancelled(*work, reason);
}

std::string Strands::current() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return running_.empty() ? "" : *running_.begin();
}

void Strands::loop(std::list<std::thread>::iterator self) {
  pthread_setname_np(pthread_self(), "ddl-messages");
  // Operations write into tensors as memory: autograd has no part in it.
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    if (!ready_.empty()) {
      run_next(lock);
      continue;
    }
    if (is_closing_ || num_idle_ >= kMostIdle) break;
    ++num_idle_;
    changed_.wait(lock, [&] { return is_closing_ || !ready_.empty(); });
    --num_idle_;
  }
  ended_.splice(ended_.end(), threads_, self);
  changed_.notify_all();
}

// Runs the first operation of the first queue that is ready. The lock is free meanwhile.
void Strands::run_next(std::unique_lock<std::mutex>& lock) {
  const Key key = ready_.front();
  ready_.pop_front();
  c10::intrusive_ptr<OperationWork> work;
  work.swap(queues_.at(key).front());
  const auto title = running_.insert(work->title());
  lock.unlock();
  work->run();
  work.reset();  // its destruction may want Python's lock, whose holder may be waiting for ours
  lock.lock();
  running_.erase(title);
  Queue& queue = queues_.at(key);
  queue.pop_front();
  if (queue.empty()) {
    queues_.erase(key);
  } else {
    ready_.push_back(key);
  }
  changed_.notify_all();
}

}  // namespace ddl_torch
