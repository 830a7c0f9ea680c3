#include "async/group.h"

#include <algorithm>

namespace ddl {

void Group::add(const Allreduce* next) {
  if (is_complete_) return;
  const bool is_fusable = next != nullptr && next->is_fusable(max_bytes_);
  const std::size_t nbytes = is_fusable ? next->nbytes() : 0;
  if (size_ > 0 && !(is_fusable && fits(*next, nbytes))) {
    is_complete_ = true;
    return;
  }
  ++size_;
  if (is_fusable) {
    nbytes_ += nbytes;
    type_ = next->type;
    op_ = next->op;
    const auto begin = reinterpret_cast<std::uintptr_t>(next->recv);
    written_.push_back({begin, begin + nbytes});
  }
  is_complete_ = !is_fusable || nbytes_ == max_bytes_;
}

bool Group::fits(const Allreduce& next, std::size_t nbytes) const {
  if (next.type != type_ || next.op != op_ || nbytes > max_bytes_ - nbytes_) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(next.send);
  const std::uintptr_t end = begin + nbytes;
  return std::none_of(written_.begin(), written_.end(), [&](const Range& written) {
    return begin < written.end && written.begin < end;
  });
}

}  // namespace ddl
