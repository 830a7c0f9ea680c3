// How long the operations of a group may wait. libddl has a timeout for the process, torch one for
// each operation.
#pragma once

#include <chrono>
#include <mutex>
#include <vector>

namespace ddl_torch {

class Timeouts {
 public:
  // Ends the waits under way, and those to come at their begin.
  void cancel();
  bool is_cancelled();

  // The limit of one operation, for the thread that runs it.
  class Scope {
   public:
    Scope(Timeouts& timeouts, std::chrono::milliseconds timeout);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Timeouts& timeouts_;
    double seconds_;  // libddl reads it while it waits
  };

 private:
  std::mutex mutex_;
  std::vector<double*> running_;
  bool is_cancelled_ = false;
};

}  // namespace ddl_torch
