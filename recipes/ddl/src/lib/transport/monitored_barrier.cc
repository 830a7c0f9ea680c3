#include "transport/monitored_barrier.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "base/timeout.h"

namespace ddl {
namespace {

// All messages of a monitored barrier. A member greets. The leader answers that it is there, and
// for how long. The member, if it is still there, brings its text. The leader sends the verdict to
// all, perhaps before anything else.
struct Message {
  enum Kind { kGreeting, kHere, kBrought, kVerdict };
  Kind kind = kGreeting;
  DDL_Result code = DDL_SUCCESS;
  double timeout = 0;             // of the leader, in kHere
  std::uint64_t hash = 0;         // of all of the text
  char text[kMaxErrorText] = {};  // the member's text, or an error: as much of it as fits

  static Message make(Kind kind, DDL_Result code = DDL_SUCCESS, const std::string& words = "") {
    Message message;
    message.kind = kind;
    message.code = code;
    message.timeout = wait_limit();
    message.hash = std::hash<std::string>()(words);
    words.copy(message.text, kMaxErrorText - 1);
    return message;
  }
};

// Has all that MPI is given: it must outlive a message that cannot be taken back.
class Barrier {
 public:
  Barrier(MpiTransport& transport, const std::vector<int>& members, int tag, const Message& own)
      : transport_(transport), members_(members), tag_(tag), own_(own), messages_(members.size()) {
    std::sort(members_.begin(), members_.end());  // the leader is the same, whatever their order
    messages_[0] = own;
  }

  int leader() const { return members_.front(); }

  void lead() {
    std::optional<Error> error;
    try {
      gather();
      compare();
    } catch (...) {
      with_current_error([&](const Error& e) {
        error = e;
        verdict_ = Message::make(Message::kVerdict, e.code(), e.what());
      });
    }
    tell(error.has_value());
    if (error) throw *error;
  }

  void follow() {
    Batch batch(transport_);
    batch.send(&greeting_, sizeof(Message), leader(), tag_);
    Message answer = next(&batch, 0);
    if (answer.kind == Message::kHere) {
      batch.send(&own_, sizeof(Message), leader(), tag_);
      constexpr double kMore = 1;  // for the verdict to come, once the leader's time is over
      // Our own limit is part of every wait, so it is taken off.
      answer = next(&batch, answer.timeout + kMore - wait_limit());
    }
    if (answer.code != DDL_SUCCESS) throw Relayed(answer.code, answer.text);
  }

 private:
  Message next(Batch* batch, double more) {
    batch->recv(&incoming_, sizeof(Message), leader(), tag_ + 1);
    batch->wait(more);
    return incoming_;
  }

  // Receives two messages of each member: its greeting, perhaps of one that has given up since, and
  // its text.
  void gather() {
    Batch batch(transport_);
    for (std::size_t i = 1; i < members_.size(); ++i) {
      batch.recv(&messages_[i], sizeof(Message), members_[i], tag_, i);
    }
    // Receives have ids from 1 on: member 0 is the leader itself.
    constexpr std::uint64_t kSent = 0;
    const auto on_complete = [&](std::uint64_t i) {
      if (i == kSent || messages_[i].kind != Message::kGreeting) return;
      batch.send(&here_, sizeof(Message), members_[i], tag_ + 1, kSent);
      batch.recv(&messages_[i], sizeof(Message), members_[i], tag_, i);
    };
    PollBackoff backoff(transport_);  // whoever comes, time goes on
    while (!batch.is_empty()) {
      if (!batch.poll(on_complete)) backoff.wait([&] { return batch.awaited(); });
    }
  }

  void compare() const {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].code == DDL_SUCCESS) continue;
      fail(messages_[i].code, describe(i), ": ", messages_[i].text);
    }
    for (std::size_t i = 1; i < messages_.size(); ++i) {
      if (messages_[i].hash == messages_[0].hash) continue;
      fail(DDL_ERROR_MISMATCH, "the ranks differ: ", describe(0), " has ", brief(messages_[0]),
           ", but ", describe(i), " has ", brief(messages_[i]), "; give all of them the same");
    }
  }

  // Two of these fit into the verdict.
  static std::string brief(const Message& message) {
    constexpr std::size_t kMost = kMaxErrorText / 3;
    const std::string text = message.text;
    return text.size() > kMost ? text.substr(0, kMost) + " ..." : text;
  }

  // A lost rank shall not keep an error from the others. Without an error, the ranks that have been
  // told go on to a point where they would wait for the lost one, too.
  void tell(bool is_error) {
    const auto unless_lost = [is_error](const auto& act) {
      try {
        act();
      } catch (...) {
        if (!is_error) throw;
      }
    };
    Batch verdicts(transport_);
    for (std::size_t i = 1; i < members_.size(); ++i) {
      unless_lost([&] { verdicts.send(&verdict_, sizeof(Message), members_[i], tag_ + 1); });
    }
    unless_lost([&] { verdicts.wait(); });
  }

  std::string describe(std::size_t i) const { return transport_.peers()[members_[i]].describe(); }

  MpiTransport& transport_;
  std::vector<int> members_;
  int tag_;
  Message own_;
  Message incoming_;
  std::vector<Message> messages_;  // of the members
  const Message greeting_ = Message::make(Message::kGreeting);
  const Message here_ = Message::make(Message::kHere);
  Message verdict_ = Message::make(Message::kVerdict);
};

}  // namespace

void monitored_barrier(MpiTransport& transport, const std::vector<int>& members, int group,
                       const std::string& alike, const std::optional<Error>& error) {
  const Message own = error ? Message::make(Message::kBrought, error->code(), error->what())
                            : Message::make(Message::kBrought, DDL_SUCCESS, alike);
  int rank = 0;
  check_mpi(MPI_Comm_rank(transport.comm(), &rank), "MPI_Comm_rank");
  auto barrier =
      std::make_unique<Barrier>(transport, members, tags::kMonitoredBarrier.at(2 * group), own);
  try {
    rank == barrier->leader() ? barrier->lead() : barrier->follow();
  } catch (const Error& e) {
    if (is_agreed(e) && error) throw *error;  // in its own words
    // Never freed: MPI may still write into its messages.
    if (!is_agreed(e)) static_cast<void>(barrier.release());
    throw;
  } catch (...) {
    static_cast<void>(barrier.release());
    throw;
  }
}

bool is_agreed(const Error& error) {
  const DDL_Result code = error.code();
  return code == DDL_ERROR_MISMATCH || code == DDL_ERROR_ARGUMENT;
}

}  // namespace ddl
