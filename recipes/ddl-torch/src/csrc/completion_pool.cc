#include "completion_pool.h"

#include <pthread.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace ddl_torch {

struct CompletionPool::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> waiting;
  std::size_t running = 0;
  std::size_t idle = 0;
  bool is_closing = false;

  bool is_done() const { return waiting.empty() && running == 0; }
};

namespace {

// The state of the pool whose thread this is, or null.
thread_local const void* own = nullptr;

}  // namespace

CompletionPool::CompletionPool() : state_(std::make_shared<State>()) {}

CompletionPool::~CompletionPool() { close(); }

void CompletionPool::close() {
  std::unique_lock<std::mutex> lock(state_->mutex);
  state_->is_closing = true;
  state_->changed.notify_all();
  // A task that drops the last reference to the pool cannot wait for its own end.
  if (own != state_.get()) state_->changed.wait(lock, [&] { return state_->is_done(); });
}

void CompletionPool::give(std::function<void()> task) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  if (state_->is_closing) {
    lock.unlock();
    return task();
  }
  state_->waiting.push_back(std::move(task));
  // Every waiting task gets a thread at once: those that run may be waiting for this one.
  if (state_->idle < state_->waiting.size()) {
    std::thread([state = state_] { work(state); }).detach();
  } else {
    state_->changed.notify_all();
  }
}

bool CompletionPool::drain(std::chrono::steady_clock::time_point deadline) {
  std::unique_lock<std::mutex> lock(state_->mutex);
  return state_->changed.wait_until(lock, deadline, [&] { return state_->is_done(); });
}

void CompletionPool::work(const std::shared_ptr<State>& state) {
  pthread_setname_np(pthread_self(), "ddl-futures");
  own = state.get();
  std::unique_lock<std::mutex> lock(state->mutex);
  while (true) {
    ++state->idle;
    state->changed.wait(lock, [&] { return state->is_closing || !state->waiting.empty(); });
    --state->idle;
    if (state->waiting.empty()) return;
    std::function<void()> task = std::move(state->waiting.front());
    state->waiting.pop_front();
    ++state->running;
    lock.unlock();
    task();
    task = nullptr;  // the destruction of its captures may want Python's lock
    lock.lock();
    --state->running;
    state->changed.notify_all();
    if (state->idle > 0) return;  // one idle thread is enough for the next task
  }
}

}  // namespace ddl_torch
