#include "async/group.h"

#include <algorithm>

namespace ddl {

void Group::add(const Arguments* next) {
  if (is_complete_) return;
  const bool can_join = next != nullptr && is_fusable(*next, max_bytes_);
  const std::size_t nbytes = can_join ? next->nbytes() : 0;
  if (size_ > 0 && !(can_join && fits(*next, nbytes))) {
    is_complete_ = true;
    return;
  }
  ++size_;
  if (can_join) {
    nbytes_ += nbytes;
    type_ = next->type;
    op_ = next->op;
    const auto begin = reinterpret_cast<std::uintptr_t>(next->recv);
    written_.push_back({begin, begin + nbytes});
  }
  is_complete_ = !can_join || nbytes_ == max_bytes_;
}

bool Group::fits(const Arguments& next, std::size_t nbytes) const {
  if (next.type != type_ || next.op != op_ || nbytes > max_bytes_ - nbytes_) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(next.send);
  const std::uintptr_t end = begin + nbytes;
  return std::none_of(written_.begin(), written_.end(), [&](const Range& written) {
    return begin < written.end && written.begin < end;
  });
}

}  // namespace ddl
