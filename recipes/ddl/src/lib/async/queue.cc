#include "async/queue.h"

#include <csignal>
#include <exception>
#include <system_error>

namespace ddl {
namespace {

// The queue whose worker this thread is.
thread_local const Queue* t_own_queue = nullptr;

// Keeps signals from this thread for its lifetime, and from threads that it starts for theirs.
class NoSignals {
 public:
  NoSignals() {
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_;
};

// Lets the lock go for its lifetime.
class Unlocked {
 public:
  explicit Unlocked(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
  ~Unlocked() { lock_.lock(); }
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;

 private:
  std::unique_lock<std::mutex>& lock_;
};

}  // namespace

Queue::Queue(Limits limits, Reduce reduce, GiveUp give_up)
    : limits_(limits),
      reduce_(std::move(reduce)),
      give_up_(std::move(give_up)),
      group_(limits.max_bytes) {}

Queue::~Queue() {
  {
    const std::lock_guard<std::mutex> lock(board_->mutex);
    is_ending_ = true;
    board_->work.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Request> Queue::submit(const Arguments& allreduce) {
  return submit(allreduce, nullptr);
}

std::shared_ptr<Request> Queue::submit(std::function<void()> run) {
  return submit(std::nullopt, std::move(run));
}

std::shared_ptr<Request> Queue::submit(std::optional<Arguments> allreduce,
                                       std::function<void()> run) {
  auto request = std::make_shared<Request>(board_);
  const std::lock_guard<std::mutex> lock(board_->mutex);
  if (!thread_.joinable()) start_worker();
  const bool was_idle = operations_.empty();
  const bool was_complete = group_.is_complete();
  operations_.push_back({request, allreduce, std::move(run), Clock::now()});
  group_.add(operations_.back().allreduce_or_null());
  // Before this returns: is_ahead() takes no lock, and a blocking call of this thread must see it.
  is_busy_.store(true, std::memory_order_release);
  num_submitted_.fetch_add(1, std::memory_order_relaxed);
  // A worker that lets a group grow is not woken for every new member.
  if (was_idle || was_complete != group_.is_complete()) board_->work.notify_one();
  return request;
}

void Queue::start_worker() {
  // Signals are for the program's own threads.
  const NoSignals no_signals;
  try {
    thread_ = std::thread([this] { work(); });
  } catch (const std::system_error& error) {
    fail(DDL_ERROR_SYSTEM, "cannot start the thread of asynchronous calls: ", error.what(),
         "; allow more processes (ulimit -u) or use the blocking calls");
  }
}

void Queue::run_behind(const std::function<void()>& body) {
  std::exception_ptr thrown;  // a request's outcome would lose the type
  // By reference: this function returns when the body has run.
  const auto request = submit([&] {
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  });
  request->wait();
  if (thrown) std::rethrow_exception(thrown);
}

bool Queue::is_ahead() const {
  // The worker itself must not wait behind what it carries out.
  return is_busy_.load(std::memory_order_acquire) && t_own_queue != this;
}

void Queue::drain() {
  std::unique_lock<std::mutex> lock(board_->mutex);
  const Waiting waiting(*board_);
  board_->done.wait(lock, [this] { return operations_.empty(); });
}

void Queue::work() {
  t_own_queue = this;
  std::unique_lock<std::mutex> lock(board_->mutex);
  while (true) {
    board_->work.wait(lock, [this] { return is_ending_ || !operations_.empty(); });
    // Only now: all that was submitted before the end has been carried out.
    if (operations_.empty()) return;
    hold_back(lock);
    try {
      finish_first(carry_out_first(lock));
    } catch (...) {
      with_current_error([this](const Error& error) {
        give_up_(error);
        // The first alone. Those behind it will find that the communicator has given up.
        finish_one({error.code(), error.what()});
      });
    }
    go_on();
  }
}

// Lets the group at the head grow, as long as nobody is kept waiting and not for too long.
void Queue::hold_back(std::unique_lock<std::mutex>& lock) {
  const auto wait = std::chrono::duration_cast<Clock::duration>(limits_.max_wait);
  board_->work.wait_until(lock, operations_.front().submitted_at + wait, [this] {
    return group_.is_complete() || board_->num_waiting > 0 || is_ending_;
  });
}

std::vector<Outcome> Queue::carry_out_first(std::unique_lock<std::mutex>& lock) {
  // Operations are only added at the end meanwhile, so this reference stays valid.
  const Operation& first = operations_.front();
  std::vector<Arguments> allreduces;
  for (std::size_t i = 0; first.allreduce && i < group_.size(); ++i) {
    allreduces.push_back(*operations_[i].allreduce);
  }
  const Unlocked unlocked(lock);
  return first.allreduce ? reduce_(allreduces) : std::vector<Outcome>{outcome_of(first.run)};
}

void Queue::finish_first(std::vector<Outcome> outcomes) {
  for (Outcome& outcome : outcomes) finish_one(std::move(outcome));
}

void Queue::finish_one(Outcome outcome) {
  operations_.front().request->finish(std::move(outcome));
  operations_.pop_front();
}

void Queue::go_on() {
  // Anew: others have joined meanwhile, and the ranks may have carried out fewer than there were.
  group_ = Group(limits_.max_bytes);
  for (const Operation& operation : operations_) {
    group_.add(operation.allreduce_or_null());
    if (group_.is_complete()) break;
  }
  // At the end: who sees that it is idle may read what the operations have written.
  is_busy_.store(!operations_.empty(), std::memory_order_release);
  board_->done.notify_all();
}

}  // namespace ddl
