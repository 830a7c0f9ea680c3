#include "async/group.h"

#include <algorithm>
#include <cstdint>

namespace ddl {
namespace {

bool reads_result_of(const Allreduce& later, const Allreduce& earlier) {
  const auto read = reinterpret_cast<std::uintptr_t>(later.send);
  const auto written = reinterpret_cast<std::uintptr_t>(earlier.recv);
  return read < written + earlier.nbytes() && written < read + later.nbytes();
}

}  // namespace

void Group::add(const Allreduce* next) {
  if (is_complete_) return;
  const bool is_fusable = next != nullptr && next->is_fusable(max_bytes_);
  if (size_ > 0 && !(is_fusable && fits(*next))) {
    is_complete_ = true;
    return;
  }
  ++size_;
  if (is_fusable) {
    nbytes_ += next->nbytes();
    members_.push_back(*next);
  }
  is_complete_ = !is_fusable || nbytes_ == max_bytes_;
}

bool Group::fits(const Allreduce& next) const {
  const Allreduce& first = members_.front();
  return next.type == first.type && next.op == first.op && next.nbytes() <= max_bytes_ - nbytes_ &&
         std::none_of(members_.begin(), members_.end(),
                      [&](const Allreduce& earlier) { return reads_result_of(next, earlier); });
}

}  // namespace ddl
