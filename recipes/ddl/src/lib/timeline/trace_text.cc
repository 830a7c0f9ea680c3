#include "timeline/trace_text.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/settings.h"
#include "base/types.h"

namespace ddl {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < ' ' ? '?' : c;
  }
  return out + '"';
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
  return text;
}

std::string describe_schedule(int schedule) {
  if (schedule == CollectiveEvent::kWithinHost) return "host";
  if (schedule == CollectiveEvent::kOrdered) return "ordered";
  if (schedule == CollectiveEvent::kPiggybacked) return "piggybacked";
  return name_of_schedule(schedule);
}

std::string describe(const TimelineGroup& group) {
  constexpr std::size_t kMostNamed = 8;
  if (group.id == 0) return "all ranks";
  if (group.ranks.size() <= kMostNamed) return "ranks " + list_of(group.ranks);
  return concat(group.ranks.size(), " ranks from ", group.ranks[0], ", group ",
                group.id & 0xffffffff);
}

}  // namespace

double TraceClock::microseconds(std::int64_t time) const {
  double offset = static_cast<double>(first_.offset);
  if (last_.at > first_.at) {
    const double share =
        static_cast<double>(time - first_.at) / static_cast<double>(last_.at - first_.at);
    offset += static_cast<double>(last_.offset - first_.offset) * share;
  }
  // The difference first: a double has not the digits for nanoseconds since a machine's start.
  return (static_cast<double>(time - zero_) + offset) / 1e3;
}

void TraceText::separate() {
  if (!text_.empty()) text_ += ",\n";
}

void TraceText::add_name(const char* what, int thread, const std::string& arguments) {
  separate();
  text_ += concat("{\"ph\": \"M\", \"name\": \"", what, "\", \"pid\": ", rank_,
                  ", \"tid\": ", thread, ", \"args\": {", arguments, "}}");
}

void TraceText::add_span(std::int64_t begin, std::int64_t end, int thread, const std::string& name,
                         const std::string& arguments) {
  char times[96];
  std::snprintf(times, sizeof(times), "\"ts\": %.3f, \"dur\": %.3f", clock_.microseconds(begin),
                static_cast<double>(end - begin) / 1e3);
  separate();
  text_ += "{\"ph\": \"X\", \"pid\": ";
  text_ += std::to_string(rank_);
  text_ += ", \"tid\": ";
  text_ += std::to_string(thread);
  text_ += ", ";
  text_ += times;
  text_ += ", \"name\": \"";
  text_ += name;
  text_ += "\", \"args\": {";
  text_ += arguments;
  text_ += "}}";
}

void TraceText::add_head(std::uint64_t dropped_collectives, std::uint64_t dropped_messages,
                         const std::vector<TimelineGroup>& groups) {
  char error[32];
  std::snprintf(error, sizeof(error), "%.3f", clock_.error());
  const std::uint64_t dropped = dropped_collectives + dropped_messages;
  const std::string missing = dropped > 0 ? concat(", ", dropped, " older events dropped") : "";
  add_name("process_name", 0, "\"name\": " + quoted(concat("rank ", rank_, " (", host_, ")")));
  add_name("process_sort_index", 0, concat("\"sort_index\": ", rank_));
  add_name("process_labels", 0,
           "\"labels\": " + quoted(concat("clock within ", error, " us", missing)));
  std::string members;
  for (const TimelineGroup& group : groups) {
    add_name("thread_name", num_threads_++, "\"name\": " + quoted(describe(group)));
    members +=
        concat(members.empty() ? "" : ", ", "\"", group.id, "\": [", list_of(group.ranks), "]");
  }
  // Viewers do not know this one: it is for ddl.timeline.
  add_name("ddl_rank", 0,
           concat("\"host\": ", quoted(host_), ", \"clock_error_us\": ", error,
                  ", \"dropped_collectives\": ", dropped_collectives,
                  ", \"dropped_messages\": ", dropped_messages, ", \"groups\": {", members, "}"));
}

void TraceText::add(const CollectiveEvent& event, const TimelineGroup& group) {
  std::string more = concat("\"call\": ", event.number, ", \"group\": \"", group.id,
                            "\", \"bytes\": ", event.bytes);
  if (event.type >= 0) {
    more += concat(", \"type\": \"", name_of(static_cast<DDL_Type>(event.type)), "\", \"op\": \"",
                   name_of(static_cast<DDL_Op>(event.op)), "\"");
  }
  if (event.root >= 0) more += concat(", \"root\": ", event.root);
  if (event.schedule != CollectiveEvent::kNone) {
    more += concat(", \"schedule\": \"", describe_schedule(event.schedule), "\"");
  }
  if (event.is_fused) more += ", \"fused\": true";
  if (event.is_on_device) more += ", \"gpu\": true";
  if (event.has_failed) more += ", \"failed\": true";
  add_span(event.begin, event.end, static_cast<int>(event.group), event.name, more);
}

void TraceText::add(std::vector<MessageEvent> messages) {
  std::stable_sort(messages.begin(), messages.end(),
                   [](const auto& a, const auto& b) { return a.begin < b.begin; });
  struct Lane {
    int thread;
    std::int64_t end;
  };
  std::map<std::pair<int, bool>, std::vector<Lane>> lanes_of_links;
  for (const MessageEvent& message : messages) {
    std::vector<Lane>& lanes = lanes_of_links[{message.peer, message.is_recv}];
    const char* way = message.is_recv ? "from" : "to";
    auto lane = std::find_if(lanes.begin(), lanes.end(),
                             [&](const Lane& each) { return each.end <= message.begin; });
    if (lane == lanes.end()) {
      lane = lanes.insert(lanes.end(), {num_threads_++, 0});
      add_name("thread_name", lane->thread,
               "\"name\": " + quoted(concat(way, " rank ", message.peer)));
    }
    lane->end = message.end;
    add_span(message.begin, message.end, lane->thread, message.is_recv ? "recv" : "send",
             concat("\"bytes\": ", message.bytes, ", \"", way, "\": ", message.peer));
  }
}

}  // namespace ddl
