// An asynchronous operation as its caller sees it: under way, or done with a code and a sentence.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/guard.h"
#include "base/wait.h"

namespace ddl {

// The end of an operation; `message` is the error's sentence.
struct Outcome {
  DDL_Result code = DDL_SUCCESS;
  std::string message;
};

template <class Body>
Outcome outcome_of(const Body& body) {
  const DDL_Result code = guard(body);
  return code == DDL_SUCCESS ? Outcome{} : Outcome{code, last_error()};
}

// Shared by a worker and the threads that wait for it. The board outlives the worker, since a
// request may be asked for its outcome after its communicator is gone.
struct Board {
  std::mutex mutex;
  std::condition_variable work;  // for the worker: there is more to do, or someone waits
  std::condition_variable done;  // for those who wait: some request is done
  int num_waiting = 0;  // threads that wait; as long as there are any, nothing is held back
};

class Request {
 public:
  explicit Request(std::shared_ptr<Board> board) : board_(std::move(board)) {}

  // Ends the request. The caller holds the board's mutex and notifies `done`.
  void finish(Outcome outcome) { outcome_ = std::move(outcome); }

  bool is_done() const;
  void wait();
  // False when the request is not done by `deadline`.
  bool wait_until(Clock::time_point deadline);
  // The request must be done; the outcome does not change any more.
  const Outcome& outcome() const { return *outcome_; }

 private:
  std::shared_ptr<Board> board_;
  std::optional<Outcome> outcome_;
};

// Counts its thread as waiting, and tells the worker. The board's mutex is held at both ends.
class Waiting {
 public:
  explicit Waiting(Board& board) : board_(board) {
    ++board_.num_waiting;
    board_.work.notify_one();
  }
  ~Waiting() { --board_.num_waiting; }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  Board& board_;
};

}  // namespace ddl

// A ddl_request_t points to this.
struct ddl_request {
  std::shared_ptr<ddl::Request> state;
};
