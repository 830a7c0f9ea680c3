// Events as text of the Chrome trace format, which perfetto reads. It is described at
// https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "timeline/events.h"

namespace ddl {

// Events stand between these, with commas between.
inline const std::string kTraceBegin = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
inline const std::string kTraceEnd = "\n]}\n";

// Turns this rank's times into microseconds since the trace's begin, by rank 0's clock. Clocks run
// at speeds of their own: between the first and the last sample the offset goes from one to the
// other.
class TraceClock {
 public:
  TraceClock(const ClockSample& first, const ClockSample& last, std::int64_t zero)
      : first_(first), last_(last), zero_(zero) {}
  double microseconds(std::int64_t time) const;
  double error() const { return static_cast<double>(std::max(first_.error, last_.error)) / 1e3; }

 private:
  ClockSample first_;
  ClockSample last_;
  std::int64_t zero_;
};

// A rank is a process of the trace. A communicator is a thread of it, and so is each lane of a link
// to or from another rank: messages that are under way at the same time are in different lanes.
class TraceText {
 public:
  TraceText(int rank, const std::string& host, const TraceClock& clock)
      : rank_(rank), host_(host), clock_(clock) {}

  // The names of the rank and of its communicators, and how many events are missing.
  void add_head(std::uint64_t dropped_collectives, std::uint64_t dropped_messages,
                const std::vector<TimelineGroup>& groups);
  void add(const CollectiveEvent& event, const TimelineGroup& group);
  // After all collectives.
  void add(std::vector<MessageEvent> messages);

  std::string take() { return std::move(text_); }

 private:
  void add_name(const char* what, int thread, const std::string& arguments);
  void add_span(std::int64_t begin, std::int64_t end, int thread, const std::string& name,
                const std::string& arguments);
  void separate();

  const int rank_;
  const std::string host_;
  const TraceClock clock_;
  int num_threads_ = 0;
  std::string text_;
};

}  // namespace ddl
