// The thread that carries out this process's operations, so that TensorFlow's threads never wait.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "negotiation.h"
#include "operation.h"
#include "packing.h"

namespace ddl_tensorflow {

class BackgroundThread {
 public:
  // The only one of the process; it lives as long as the process.
  static BackgroundThread& instance();

  // Returns at once; the thread calls the operation's `finish`.
  void give(std::unique_ptr<Operation> operation);

  // Ends this rank's part: operations that others have asked for, or will, fail there. Returns at
  // once; `wait_shut_down` waits for at most `seconds` until all others have heard it.
  void shut_down();
  void wait_shut_down(double seconds);

 private:
  struct Pending {
    std::unique_ptr<Operation> operation;
    std::uint64_t name;
    double since;  // seconds
    std::vector<std::int64_t> rows;
  };
  struct Message;
  using Pendings = std::vector<Pending>;

  BackgroundThread() = default;
  void start();
  void loop();
  bool wait_for_work(double seconds);
  bool should_shut_down();
  void set_shut_down();
  absl::Status open();
  absl::Status round();
  Message next_message(Pendings& fresh);
  Pending take(const Agreement& agreement);
  void carry_out(Pendings ready);
  absl::Status explain_difference(const Pending& pending);
  bool is_overdue() const;
  void give_up();
  void fail_all(const absl::Status& status);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Operation>> given_;
  bool is_running_ = false;
  bool is_shutting_down_ = false;
  bool is_shut_down_ = false;

  // The rest belongs to the thread.
  ddl_comm_t comm_ = DDL_COMM_WORLD;
  int rank_ = 0;
  int size_ = 0;
  std::optional<Negotiation> negotiation_;  // there is one while `comm_` can be used
  absl::Status closed_;                     // why there will be none
  std::unordered_map<std::uint64_t, std::deque<Pending>> announced_;
  bool is_progressing_ = true;
  Packing packing_;
};

}  // namespace ddl_tensorflow
