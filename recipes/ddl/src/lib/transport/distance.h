// The distance between the processors of a host's ranks. Where they share no cache, data comes to
// another processor several times slower from the caches of the first than from memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddl {

// In the memory that the ranks share; zero at first.
struct alignas(64) SharedDistance {
  std::atomic<std::uint32_t> ball;
  std::atomic<bool> is_far;
};

// Looks now and then, since a hypervisor may move a virtual machine's processors at any time: the
// first rank and another one, a different one each time, throw a ball to and fro.
class DistanceWatch {
 public:
  static constexpr std::uint32_t kRounds = 12;  // to and fro, at a look
  // The ball counts its throws. A look that was given up has had fewer than the next begins with.
  static constexpr std::uint32_t kLookThrows = 4 * kRounds;

  DistanceWatch(int rank, int size) : rank_(rank), far_(size) {}

  // Collective, before `nbytes` pass between the ranks, each of which has a processor.
  void look(SharedDistance* shared, std::size_t nbytes);

 private:
  bool is_far_from(int partner, std::uint32_t nth, std::atomic<std::uint32_t>* ball) const;

  int rank_;
  std::vector<bool> far_;  // by rank, as the first rank found it last
  std::uint32_t looks_ = 0;
  std::size_t until_look_ = 0;  // bytes
};

}  // namespace ddl
