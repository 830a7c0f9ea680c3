#include "transport/roll_call.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace ddl {
namespace {

constexpr std::size_t kText = 1024;

// All messages of a roll call. A member greets. The leader answers that it is there, and for how
// long. The member, if it is still there, brings its text. The leader sends the verdict to all,
// perhaps before anything else.
struct Slip {
  enum Kind { kGreeting, kHere, kBrought, kVerdict };
  Kind kind = kGreeting;
  DDL_Result code = DDL_SUCCESS;
  double timeout = 0;      // of the leader, in kHere
  std::uint64_t hash = 0;  // of all of the text
  char text[kText] = {};   // the member's text, or an error: as much of it as fits

  static Slip make(Kind kind, DDL_Result code = DDL_SUCCESS, const std::string& words = "") {
    Slip slip;
    slip.kind = kind;
    slip.code = code;
    slip.timeout = wait_limit();
    slip.hash = std::hash<std::string>()(words);
    words.copy(slip.text, kText - 1);
    return slip;
  }
};

// Has all that MPI is given: it must outlive a message that cannot be taken back.
class Roll {
 public:
  Roll(MpiTransport& transport, const std::vector<int>& members, int tag, const Slip& own)
      : transport_(transport), members_(members), tag_(tag), own_(own), slips_(members.size()) {
    std::sort(members_.begin(), members_.end());  // the leader is the same, whatever their order
    slips_[0] = own;
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
        verdict_ = Slip::make(Slip::kVerdict, e.code(), e.what());
      });
    }
    tell(error.has_value());
    if (error) throw *error;
  }

  void follow() {
    Batch batch(transport_);
    batch.send(&greeting_, sizeof(Slip), leader(), tag_);
    Slip answer = next(&batch, 0);
    if (answer.kind == Slip::kHere) {
      batch.send(&own_, sizeof(Slip), leader(), tag_);
      constexpr double kMore = 1;  // for the verdict to come, once the leader's time is over
      answer = next(&batch, answer.timeout + kMore - wait_limit());
    }
    if (answer.code != DDL_SUCCESS) throw Relayed(answer.code, answer.text);
  }

 private:
  Slip next(Batch* batch, double more) {
    batch->recv(&incoming_, sizeof(Slip), leader(), tag_ + 1);
    batch->wait(more);
    return incoming_;
  }

  // Receives two messages of each member: its greeting, perhaps of one that has given up since, and
  // its text.
  void gather() {
    Batch batch(transport_);
    for (std::size_t i = 1; i < members_.size(); ++i) {
      batch.recv(&slips_[i], sizeof(Slip), members_[i], tag_, i);
    }
    constexpr std::uint64_t kSent = 0;
    const auto on_complete = [&](std::uint64_t i) {
      if (i == kSent || slips_[i].kind != Slip::kGreeting) return;
      batch.send(&here_, sizeof(Slip), members_[i], tag_ + 1, kSent);
      batch.recv(&slips_[i], sizeof(Slip), members_[i], tag_, i);
    };
    Patience patience(transport_);  // whoever comes, time goes on
    while (!batch.is_empty()) {
      if (!batch.poll(on_complete)) patience.wait([&] { return batch.awaited(); });
    }
  }

  void compare() const {
    for (std::size_t i = 0; i < slips_.size(); ++i) {
      if (slips_[i].code == DDL_SUCCESS) continue;
      fail(slips_[i].code, describe(i), ": ", slips_[i].text);
    }
    for (std::size_t i = 1; i < slips_.size(); ++i) {
      if (slips_[i].hash == slips_[0].hash) continue;
      fail(DDL_ERROR_MISMATCH, "the ranks differ: ", describe(0), " has ", brief(slips_[0]),
           ", but ", describe(i), " has ", brief(slips_[i]), "; give all of them the same");
    }
  }

  // Two of these fit into the verdict.
  static std::string brief(const Slip& slip) {
    constexpr std::size_t kMost = kText / 3;
    const std::string text = slip.text;
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
      unless_lost([&] { verdicts.send(&verdict_, sizeof(Slip), members_[i], tag_ + 1); });
    }
    unless_lost([&] { verdicts.wait(); });
  }

  std::string describe(std::size_t i) const { return transport_.peers()[members_[i]].describe(); }

  MpiTransport& transport_;
  std::vector<int> members_;
  int tag_;
  Slip own_;
  Slip incoming_;
  std::vector<Slip> slips_;  // of the members
  const Slip greeting_ = Slip::make(Slip::kGreeting);
  const Slip here_ = Slip::make(Slip::kHere);
  Slip verdict_ = Slip::make(Slip::kVerdict);
};

}  // namespace

void call_roll(MpiTransport& transport, const std::vector<int>& members, int group,
               const std::string& alike, const std::optional<Error>& error) {
  const Slip own = error ? Slip::make(Slip::kBrought, error->code(), error->what())
                         : Slip::make(Slip::kBrought, DDL_SUCCESS, alike);
  int rank = 0;
  check_mpi(MPI_Comm_rank(transport.comm(), &rank), "MPI_Comm_rank");
  auto roll = std::make_unique<Roll>(transport, members, tags::kRollCall.at(2 * group), own);
  try {
    rank == roll->leader() ? roll->lead() : roll->follow();
  } catch (const Error& e) {
    if (is_agreed(e) && error) throw *error;  // in its own words
    if (!is_agreed(e)) static_cast<void>(roll.release());
    throw;
  } catch (...) {
    static_cast<void>(roll.release());
    throw;
  }
}

bool is_agreed(const Error& error) {
  const DDL_Result code = error.code();
  return code == DDL_ERROR_MISMATCH || code == DDL_ERROR_ARGUMENT;
}

}  // namespace ddl
