// The timeline of this rank: its latest collectives and messages, which become a part of the job's
// Chrome trace. Threads may record at the same time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "timeline/events.h"
#include "timeline/ring.h"

namespace ddl {

class Timeline {
 public:
  // Events of each kind that are kept.
  static constexpr std::size_t kMostEvents = std::size_t{1} << 14;
  // Shorter messages say nothing of a link, and are not recorded.
  static constexpr std::size_t kLeastMessage = 4096;

  // `file` is that of the whole job.
  Timeline(std::string file, int rank);
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // Numbers for groups whose first rank this is.
  std::int64_t new_group_id();
  // The result is what events name the group by.
  std::uint32_t add_group(const TimelineGroup& group);
  void set_host(const std::string& host) { host_ = host; }
  // The trace begins at `zero`, of rank 0's clock.
  void set_clock(const ClockSample& first, std::int64_t zero);
  void set_last_clock(const ClockSample& last) { last_ = last; }

  void add(const CollectiveEvent& event);
  void add(const MessageEvent& event);

  // The events for a trace, with commas between.
  std::string text() const;

  // Writes this rank's part into a file of its own, for a job that does not end well: nobody could
  // collect it. Says what goes wrong on stderr.
  void save_part() noexcept;
  // Removes that file, if there is one: the job has ended well after all.
  void drop_part();

 private:
  std::string part_file() const { return file_ + ".rank-" + std::to_string(rank_); }

  const std::string file_;
  const int rank_;
  std::string host_;
  ClockSample first_;
  ClockSample last_;
  std::int64_t zero_ = 0;

  mutable std::mutex mutex_;
  Ring<CollectiveEvent> collectives_{kMostEvents};
  Ring<MessageEvent> messages_{kMostEvents};
  std::vector<TimelineGroup> groups_;
  std::int64_t num_ids_ = 0;
};

}  // namespace ddl
