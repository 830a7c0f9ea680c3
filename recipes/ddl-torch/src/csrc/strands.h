// Many queues on few threads. The operations of a queue run one after the other in the order given;
// different queues do not wait for each other.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <tuple>

#include "work.h"

namespace ddl_torch {

class Strands {
 public:
  static constexpr int kAnyRank = -1;
  // Sends or receives of one tag between this rank and a peer.
  struct Key {
    bool is_send;
    int peer;
    int tag;
    bool operator<(const Key& other) const {
      return std::tie(is_send, peer, tag) < std::tie(other.is_send, other.peer, other.tag);
    }
  };

  Strands() = default;
  ~Strands();  // runs the operations that have been given
  Strands(const Strands&) = delete;
  Strands& operator=(const Strands&) = delete;

  void give(const Key& key, c10::intrusive_ptr<OperationWork> work);

  // As those of SerialQueue.
  bool drain(std::chrono::steady_clock::time_point deadline);
  void cancel_waiting(const std::string& reason);
  std::string current();

 private:
  using Queue = std::deque<c10::intrusive_ptr<OperationWork>>;

  void loop(std::list<std::thread>::iterator self);
  void run_next(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  // A queue is here while it has an operation that waits or runs.
  std::map<Key, Queue> queues_;
  std::deque<Key> ready_;  // queues with an operation that may begin
  std::multiset<std::string> running_;
  std::list<std::thread> threads_;
  std::list<std::thread> ended_;  // to be joined
  int num_idle_ = 0;
  bool is_closing_ = false;
};

}  // namespace ddl_torch
