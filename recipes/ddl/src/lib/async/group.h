// Groups the allreduces at the head of a queue that can travel as one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/arguments.h"

namespace ddl {

// Whether an allreduce leaves space for another one beside it. All ranks come to the same answer.
inline bool is_fusable(const Arguments& allreduce, std::size_t max_bytes) {
  return allreduce.nbytes() < max_bytes;
}

// Consecutive allreduces of one type and operation, with at most `max_bytes` together. None reads
// the memory that an earlier one writes, so the result is as if they ran one after the other. An
// operation that cannot be fused is a group of its own.
class Group {
 public:
  explicit Group(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  // The next operation of the queue, null when it is no allreduce: joins the group or completes it.
  void add(const Arguments* next);

  // Operations.
  std::size_t size() const { return size_; }
  // Whether the group is closed: no later operation will join.
  bool is_complete() const { return is_complete_; }

 private:
  // A range of addresses.
  struct Range {
    std::uintptr_t begin;
    std::uintptr_t end;
  };

  bool fits(const Arguments& next, std::size_t nbytes) const;
  // Notes what it writes; false where there is no memory for that.
  bool remember(const Arguments& next);

  std::size_t max_bytes_;
  std::size_t size_ = 0;
  std::size_t nbytes_ = 0;
  DDL_Type type_ = DDL_TYPE_FLOAT;
  DDL_Op op_ = DDL_OP_SUM;
  std::vector<Range> written_;  // by the members
  bool is_complete_ = false;
};

}  // namespace ddl
