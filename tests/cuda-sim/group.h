// The ranks of a NCCL communicator, in shared memory of their host.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace sim {

// One collective, as a rank calls it: all ranks must call the same.
struct Call {
  std::uint64_t number;
  char name[24];
  std::uint64_t count;
  int type;
  int op;
  int root;
};

// What a rank sends to another, or receives from it.
struct Transfer {
  bool is_send;
  int peer;
  std::byte* data;
  std::size_t nbytes;
  std::size_t done = 0;
};

class Group {
 public:
  static constexpr std::size_t kSlotBytes = std::size_t{1} << 18;

  Group(const std::string& name, int size, int rank, int device);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }

  // Waits until every rank is there; false when the group has been stopped before.
  bool join();
  // Two ranks have one GPU.
  bool is_gpu_shared() const;
  // Compares the ranks' calls, and ends the process where they differ; false as `barrier`.
  bool agree(const Call& call);
  // False when the group has been stopped.
  bool barrier();
  std::byte* slot(int rank) const;
  // Runs all at once; of several between two ranks, in their order. False as `barrier`.
  bool exchange(std::vector<Transfer> transfers);

  // Ends all waits of this rank, from any thread.
  void stop() { is_stopped_ = true; }
  bool is_stopped() const { return is_stopped_; }
  // ncclRemoteError from when a rank's process has ended.
  ncclResult_t state() const { return state_; }
  void set_state(ncclResult_t state) { state_ = state; }

 private:
  struct Member {
    int process;
    int device;
    Call call;
  };
  struct Head {
    std::atomic<int> joined;
    std::atomic<int> arrived;
    std::atomic<int> round;
    Member members[64];
    std::atomic<std::uint32_t> mail[64][64];  // from, to: bytes that are there; 0: taken
  };

  // Until `is_done`, or the group is stopped.
  template <typename Condition>
  bool wait(Condition is_done);
  void look_for_the_dead();
  bool advance(Transfer& transfer);
  std::byte* box(int from, int to) const;

  const std::string name_;
  const int size_;
  const int rank_;
  std::size_t nbytes_;
  std::byte* base_;
  Head* head_;
  std::atomic<bool> is_stopped_{false};
  std::atomic<ncclResult_t> state_{ncclSuccess};
};

}  // namespace sim
