#include "async/group.h"

#include <algorithm>
#include <new>

namespace ddl {

void Group::add(const Arguments* next) {
  if (is_complete_) return;
  const bool can_join = next != nullptr && is_fusable(*next, max_bytes_) &&
                        (size_ == 0 || fits(*next, next->nbytes())) && remember(*next);
  is_complete_ = !can_join;
  // It begins the next group. If it is the first here, it is this group, alone.
  if (size_ > 0 && !can_join) return;
  ++size_;
  if (!can_join) return;
  nbytes_ += next->nbytes();
  type_ = next->type;
  op_ = next->op;
  is_complete_ = nbytes_ == max_bytes_;
}

bool Group::remember(const Arguments& next) {
  const auto begin = reinterpret_cast<std::uintptr_t>(next.recv);
  try {
    written_.push_back({begin, begin + next.nbytes()});
  } catch (const std::bad_alloc&) {
    return false;
  }
  return true;
}

bool Group::fits(const Arguments& next, std::size_t nbytes) const {
  if (next.type != type_ || next.op != op_ || nbytes > max_bytes_ - nbytes_) return false;
  // Reads alone: all inputs are copied before the first output is, and outputs in their order.
  const auto begin = reinterpret_cast<std::uintptr_t>(next.send);
  const std::uintptr_t end = begin + nbytes;
  return std::none_of(written_.begin(), written_.end(), [&](const Range& written) {
    return begin < written.end && written.begin < end;
  });
}

}  // namespace ddl
