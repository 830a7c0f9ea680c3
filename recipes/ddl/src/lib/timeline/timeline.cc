#include "timeline/timeline.h"

#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/error.h"
#include "timeline/trace_file.h"
#include "timeline/trace_text.h"

namespace ddl {

Timeline::Timeline(std::string file, int rank) : file_(std::move(file)), rank_(rank) {}

std::int64_t Timeline::new_group_id() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<std::int64_t>(rank_) << 32 | num_ids_++;
}

std::uint32_t Timeline::add_group(const TimelineGroup& group) {
  const std::lock_guard<std::mutex> lock(mutex_);
  groups_.push_back(group);
  return static_cast<std::uint32_t>(groups_.size() - 1);
}

void Timeline::set_clock(const ClockSample& first, std::int64_t zero) {
  first_ = last_ = first;
  zero_ = zero;
}

void Timeline::add(const CollectiveEvent& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  collectives_.push(event);
}

void Timeline::add(const MessageEvent& event) {
  const std::lock_guard<std::mutex> lock(mutex_);
  messages_.push(event);
}

std::string Timeline::text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  TraceText text(rank_, host_, TraceClock(first_, last_, zero_));
  text.add_head(collectives_.num_dropped(), messages_.num_dropped(), groups_);
  for (const CollectiveEvent& event : collectives_.items()) text.add(event, groups_[event.group]);
  text.add(messages_.items());
  return text.take();
}

void Timeline::save_part() noexcept {
  try {
    TraceFile file(part_file());
    file.write(kTraceBegin + text() + kTraceEnd);
    file.finish();
  } catch (...) {
    with_current_error([this](const Error& error) {
      std::fprintf(stderr, "[ddl] rank %d: %s\n", rank_, error.what());
    });
  }
}

void Timeline::drop_part() { unlink(part_file().c_str()); }

}  // namespace ddl
