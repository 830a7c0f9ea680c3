#include "group.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "settings.h"

namespace sim {
namespace {

constexpr std::size_t kHeadBytes = std::size_t{32} << 10;
constexpr std::size_t kBoxBytes = std::size_t{4} << 10;

std::string words(int rank, const Call& call) {
  return "rank " + std::to_string(rank) + " calls " + call.name + " of " +
         std::to_string(call.count) + " elements of type " + std::to_string(call.type) + ", op " +
         std::to_string(call.op) + ", root " + std::to_string(call.root);
}

bool is_same(const Call& a, const Call& b) {
  return a.number == b.number && std::strcmp(a.name, b.name) == 0 && a.count == b.count &&
         a.type == b.type && a.op == b.op && a.root == b.root;
}

}  // namespace

Group::Group(const std::string& name, int size, int rank, int device)
    : name_(name),
      size_(size),
      rank_(rank),
      nbytes_(kHeadBytes + static_cast<std::size_t>(size) * kSlotBytes +
              static_cast<std::size_t>(size * size) * kBoxBytes) {
  static_assert(sizeof(Head) <= kHeadBytes);
  const int file = shm_open(name.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, static_cast<off_t>(nbytes_)) != 0) die("shm_open failed");
  void* base = mmap(nullptr, nbytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (base == MAP_FAILED) die("mmap failed");
  base_ = static_cast<std::byte*>(base);
  head_ = static_cast<Head*>(base);
  if (size > 64) die("no more than 64 ranks are simulated");
  head_->members[rank] = {getpid(), device, {}};
}

Group::~Group() { munmap(base_, nbytes_); }

bool Group::join() {
  ++head_->joined;
  if (!wait([&] { return head_->joined == size_; })) return false;
  if (!barrier()) return false;
  if (rank_ == 0) shm_unlink(name_.c_str());
  return true;
}

bool Group::is_gpu_shared() const {
  for (int a = 0; a < size_; ++a) {
    for (int b = 0; b < a; ++b) {
      if (head_->members[a].device == head_->members[b].device) return true;
    }
  }
  return false;
}

bool Group::agree(const Call& call) {
  head_->members[rank_].call = call;
  if (!barrier()) return false;
  for (int rank = 0; rank < size_; ++rank) {
    const Call& other = head_->members[rank].call;
    if (!is_same(call, other)) {
      die("NCCL's call " + std::to_string(call.number) + " differs: " + words(rank_, call) +
          ", and " + words(rank, other));
    }
  }
  return barrier();
}

bool Group::barrier() {
  const int round = head_->round;
  if (++head_->arrived == size_) {
    head_->arrived = 0;
    ++head_->round;
    return !is_stopped_;
  }
  return wait([&] { return head_->round != round; });
}

std::byte* Group::slot(int rank) const {
  return base_ + kHeadBytes + static_cast<std::size_t>(rank) * kSlotBytes;
}

std::byte* Group::box(int from, int to) const {
  return slot(size_) + static_cast<std::size_t>(from * size_ + to) * kBoxBytes;
}

// One piece more, if the other rank lets it.
bool Group::advance(Transfer& transfer) {
  const int from = transfer.is_send ? rank_ : transfer.peer;
  const int to = transfer.is_send ? transfer.peer : rank_;
  std::atomic<std::uint32_t>& mail = head_->mail[from][to];
  const std::uint32_t there = mail;
  if ((there == 0) != transfer.is_send) return false;
  const std::size_t n = std::min(kBoxBytes, transfer.nbytes - transfer.done);
  if (transfer.is_send) {
    std::memcpy(box(from, to), transfer.data + transfer.done, n);
    mail = static_cast<std::uint32_t>(n);
  } else {
    if (there != n) {
      die("rank " + std::to_string(to) + " receives " + std::to_string(transfer.nbytes) +
          " bytes from rank " + std::to_string(from) + ", which sends another number");
    }
    std::memcpy(transfer.data + transfer.done, box(from, to), n);
    mail = 0;
  }
  transfer.done += n;
  return true;
}

bool Group::exchange(std::vector<Transfer> transfers) {
  return wait([&] {
    bool is_done = true;
    for (std::size_t i = 0; i < transfers.size(); ++i) {
      Transfer& one = transfers[i];
      const auto is_before = [&](const Transfer& other) {
        return other.is_send == one.is_send && other.peer == one.peer && other.done < other.nbytes;
      };
      const auto end = transfers.begin() + static_cast<std::ptrdiff_t>(i);
      while (one.done < one.nbytes && std::none_of(transfers.begin(), end, is_before) &&
             advance(one)) {
      }
      is_done = is_done && one.done == one.nbytes;
    }
    return is_done;
  });
}

template <typename Condition>
bool Group::wait(Condition is_done) {
  for (int tries = 0; !is_done(); ++tries) {
    if (is_stopped_) return false;
    if (tries < 100) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    if (tries % 1000 == 999) look_for_the_dead();
  }
  return !is_stopped_;
}

void Group::look_for_the_dead() {
  for (int rank = 0; rank < size_; ++rank) {
    const int process = head_->members[rank].process;
    if (process != 0 && kill(process, 0) != 0 && errno == ESRCH) state_ = ncclRemoteError;
  }
}

}  // namespace sim
