// Which operation comes before which: vector clocks (as Fidge 1988), one entry per stream, and one
// for all threads of the program together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sim {

class Clock {
 public:
  void join(const Clock& other) {
    if (at_.size() < other.at_.size()) at_.resize(other.at_.size());
    for (std::size_t i = 0; i < other.at_.size(); ++i) {
      if (at_[i] < other.at_[i]) at_[i] = other.at_[i];
    }
  }
  // The actor's next step; returns its number, from 1.
  std::uint64_t tick(std::size_t actor) {
    if (at_.size() <= actor) at_.resize(actor + 1);
    return ++at_[actor];
  }
  // Whether the actor's step comes before whoever has this clock.
  bool has_seen(std::size_t actor, std::uint64_t step) const {
    return actor < at_.size() && at_[actor] >= step;
  }

 private:
  std::vector<std::uint64_t> at_;
};

}  // namespace sim
