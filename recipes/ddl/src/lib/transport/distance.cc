#include "transport/distance.h"

#include <algorithm>
#include <chrono>

#include "base/wait.h"

namespace ddl {
namespace {

constexpr std::uint32_t kWarm = 4;  // rounds

// To another core and back: 55 to 150 ns with a common cache, 320 to 600 without (AMD EPYC of Zen
// 4; tests/bench/results/2026-11-23-near-far.md).
constexpr std::chrono::nanoseconds kFar{220};
constexpr std::chrono::microseconds kLookTimeout{30};

// Between two looks, which take 1 to 5 us: a millisecond or more of a host's work.
constexpr std::size_t kBytes = 64 << 20;
constexpr std::size_t kLeast = 1 << 20;  // that a call counts for

}  // namespace

void DistanceWatch::look(SharedDistance* shared, std::size_t nbytes) {
  const int size = static_cast<int>(far_.size());
  if (size == 1) return;
  nbytes = std::max(nbytes, kLeast);
  const bool is_time = until_look_ < nbytes;
  until_look_ = is_time ? kBytes : until_look_ - nbytes;
  if (!is_time) return;
  // All ranks count the same bytes of the same calls: they agree on when to look, and with whom.
  const std::uint32_t nth = looks_++;
  const int partner = 1 + static_cast<int>(nth % static_cast<std::uint32_t>(size - 1));
  if (rank_ != 0 && rank_ != partner) return;
  far_[partner] = is_far_from(partner, nth, &shared->ball);
  if (rank_ != 0) return;
  const bool is_far = std::find(far_.begin(), far_.end(), true) != far_.end();
  shared->is_far.store(is_far, std::memory_order_relaxed);
}

// Returns the last result where one of the two is late.
bool DistanceWatch::is_far_from(int partner, std::uint32_t nth,
                                std::atomic<std::uint32_t>* ball) const {
  const bool is_first = rank_ == 0;
  const std::uint32_t thrown = kLookThrows * nth;
  const Clock::time_point start = Clock::now();
  Clock::time_point warm = start;
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    if (i == kWarm + 1) warm = Clock::now();
    if (is_first) ball->store(thrown + 2 * i, std::memory_order_release);
    const std::uint32_t wanted = thrown + 2 * i + (is_first ? 1 : 0);
    while (ball->load(std::memory_order_acquire) != wanted) {
      if (Clock::now() - start > kLookTimeout) return far_[partner];
    }
    if (!is_first) ball->store(wanted + 1, std::memory_order_release);
  }
  return (Clock::now() - warm) / (kRounds - kWarm) > kFar;
}

}  // namespace ddl
