// Finds the operations that all ranks have asked for. TensorFlow runs operations in whatever order
// they become ready, but ddl wants the same order on all ranks. So the ranks tell each other the
// names.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

namespace ddl_tensorflow {

struct Announcement {
  std::uint64_t name;  // a hash of it
  std::uint64_t text;  // a hash of the lines that must be the same on all ranks
  std::int64_t rows;   // the first dimension, which may differ
};

// An operation that all ranks have announced.
struct Agreement {
  std::uint64_t name;
  bool is_same;                    // whether the texts are
  std::vector<std::int64_t> rows;  // of each rank
};

// Every rank hears the same announcements in the same order, and so comes to the same agreements in
// the same order. The n-th announcement of a name on one rank is matched by the n-th on the others.
class Negotiation {
 public:
  explicit Negotiation(int size) : size_(size) {}

  void hear(int rank, const Announcement& announcement);
  std::vector<Agreement> take_agreements();
  // The ranks that have not announced `name`.
  std::vector<int> missing(std::uint64_t name) const;
  void forget_all() { heard_.clear(); }

 private:
  using Heard = std::vector<std::deque<Announcement>>;  // of each rank

  int size_;
  std::unordered_map<std::uint64_t, Heard> heard_;  // by name
  std::vector<Agreement> agreements_;
};

}  // namespace ddl_tensorflow
