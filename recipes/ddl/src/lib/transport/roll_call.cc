#include "transport/roll_call.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

namespace ddl {
namespace {

constexpr std::size_t kText = 1024;

// What a member brings, and what the first one answers: once when it is there itself, so that the
// member knows whom it waits for from then on, and once when all are.
struct Slip {
  DDL_Result code;
  std::uint64_t hash;  // of all of `alike`
  char text[kText];    // `alike` or the error, as much of it as there is room for

  Slip() : code(DDL_SUCCESS), hash(0), text{} {}
  Slip(DDL_Result result, const std::string& words)
      : code(result), hash(std::hash<std::string>()(words)), text{} {
    words.copy(text, kText - 1);
  }
};

void poll(Batch& batch) {
  batch.poll([](std::uint64_t) {});
}

// Has all that MPI is given: it must outlive a message that cannot be taken back.
class Roll {
 public:
  Roll(MpiTransport& transport, const std::vector<int>& members, int tag, const Slip& own)
      : transport_(transport),
        members_(members),
        tag_(tag),
        own_(own),
        slips_(members.size(), own),
        is_here_(members.size()) {}

  void lead() {
    try {
      gather();
      compare();
    } catch (const Error& error) {
      verdict_ = Slip(error.code(), error.what());
    }
    tell();
    if (verdict_.code != DDL_SUCCESS) throw Error(verdict_.code, verdict_.text);
  }

  void follow() {
    const int first = members_.front();
    Batch greeting(transport_);
    greeting.send(&own_, sizeof(Slip), first, tag_);
    greeting.recv(&here_, sizeof(Slip), first, tag_ + 1);
    greeting.wait();
    Batch answer(transport_);
    answer.recv(&verdict_, sizeof(Slip), first, tag_ + 1);
    constexpr double kMore = 1;  // the first one's own time is over a little later than ours
    Patience patience(transport_, "", kMore);
    while (!answer.is_empty()) {
      if (!answer.poll([](std::uint64_t) {})) patience.wait([&] { return answer.awaited(); });
    }
    if (verdict_.code != DDL_SUCCESS) throw Relayed(verdict_.code, verdict_.text);
  }

 private:
  void gather() {
    Batch greetings(transport_);
    Batch answers(transport_);
    for (std::size_t i = 1; i < members_.size(); ++i) {
      greetings.recv(&slips_[i], sizeof(Slip), members_[i], tag_, i);
    }
    is_here_[0] = true;
    Patience patience(transport_);  // whoever comes, time goes on
    while (!greetings.is_empty() || !answers.is_empty()) {
      const bool has_moved = greetings.poll([&](std::uint64_t i) {
        is_here_[i] = true;
        answers.send(&here_, sizeof(Slip), members_[i], tag_ + 1);
      });
      poll(answers);
      if (!has_moved) patience.wait([&] { return missing(greetings, answers); });
    }
  }

  static std::vector<int> missing(const Batch& greetings, const Batch& answers) {
    const std::vector<int> absent = greetings.awaited();
    return absent.empty() ? answers.awaited() : absent;
  }

  void compare() const {
    for (std::size_t i = 0; i < slips_.size(); ++i) {
      if (slips_[i].code == DDL_SUCCESS) continue;
      fail(slips_[i].code, describe(i), ": ", slips_[i].text);
    }
    for (std::size_t i = 1; i < slips_.size(); ++i) {
      if (slips_[i].hash == slips_[0].hash) continue;
      fail(DDL_ERROR_MISMATCH, "the ranks differ: ", describe(0), " has ", slips_[0].text, ", but ",
           describe(i), " has ", slips_[i].text, "; give all of them the same");
    }
  }

  // Those who have come. Who is lost meanwhile shall not hide what the others are told.
  void tell() {
    try {
      Batch verdicts(transport_);
      for (std::size_t i = 1; i < members_.size(); ++i) {
        if (is_here_[i]) verdicts.send(&verdict_, sizeof(Slip), members_[i], tag_ + 1);
      }
      verdicts.wait();
    } catch (const Error&) {
      if (verdict_.code == DDL_SUCCESS) throw;
    }
  }

  std::string describe(std::size_t i) const { return transport_.peers()[members_[i]].describe(); }

  MpiTransport& transport_;
  const std::vector<int>& members_;
  int tag_;
  Slip own_;
  Slip here_;
  Slip verdict_;
  std::vector<Slip> slips_;  // by member
  std::vector<bool> is_here_;
};

}  // namespace

void call_roll(MpiTransport& transport, const std::vector<int>& members, int tag,
               const std::string& alike, const std::optional<Error>& error) {
  const Slip own = error ? Slip(error->code(), error->what()) : Slip(DDL_SUCCESS, alike);
  int rank = 0;
  check_mpi(MPI_Comm_rank(transport.comm(), &rank), "MPI_Comm_rank");
  auto roll = std::make_unique<Roll>(transport, members, tag, own);
  try {
    members.front() == rank ? roll->lead() : roll->follow();
  } catch (const Error&) {
    static_cast<void>(roll.release());  // a rank that comes late may still be sent what is in it
    if (error) throw *error;            // in its own words
    throw;
  }
}

}  // namespace ddl
