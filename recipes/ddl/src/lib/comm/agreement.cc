#include "comm/agreement.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "comm/collective_table.h"
#include "transport/shared_words.h"

namespace ddl {

Agreement::Agreement(HostGroup& host, MpiTransport& transport, const Topology& topology)
    : host_(host),
      transport_(transport),
      topology_(topology),
      rank_(transport.rank()),
      name_(describe(transport.rank())) {
  if (num_hosts() > 1) failure_detector_ = std::make_unique<FailureDetector>(transport_, rank_);
  watch_waits();
}

void Agreement::watch_waits() {
  if (failure_detector_) {
    host_.on_wait = [this](const auto& whom, double idle) {
      return failure_detector_->look(whom, idle);
    };
  }
  transport_.on_wait = [this](const auto& whom, double idle) {
    host_.check_members();
    return failure_detector_ ? failure_detector_->look(whom, idle) : whom;
  };
  transport_.on_end = [this](const Error& error) {
    std::fprintf(stderr, "[ddl] MPI ends %s: %s\n", describe(rank_).c_str(), error.what());
    tell_others(error);
  };
}

bool Agreement::is_usable() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  return !failure_;
}

void Agreement::check_usable() {
  const std::lock_guard<std::mutex> lock(failure_mutex_);
  if (!failure_) return;
  // A mismatch would mean that the ranks may go on.
  const bool is_mismatch = failure_->code() == DDL_ERROR_MISMATCH;
  fail(is_mismatch ? DDL_ERROR_SYSTEM : failure_->code(),
       "this communicator is unusable since an earlier error: ", failure_->what());
}

void Agreement::give_up(const Error& error) {
  {
    const std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_) return;
    failure_ = error;
  }
  tell_others(error);
}

void Agreement::tell_others(const Error& error) {
  const bool is_relayed = dynamic_cast<const Relayed*>(&error) != nullptr;
  char text[kMaxErrorText];
  std::snprintf(text, sizeof(text), "%s%s%s", is_relayed ? "" : name_.c_str(),
                is_relayed ? "" : " gave up: ", error.what());
  host_.give_up(error.code(), text);
  if (failure_detector_) failure_detector_->tell(error, text);
}

std::size_t Agreement::call_bytes() const { return bytes_of(call_, topology_.size()); }

Call Agreement::announced(Call call) const {
  if (call.collective != Collective::kIallreduce) call.fusion = fusion_fingerprint_;
  return call;
}

void Agreement::announce(const Call& call) {
  ++num_calls_;
  call_ = call;
  host_.announce(announced(call), parity());
}

void Agreement::agree_on_host() { enforce(compare_on_host()); }

std::uint32_t Agreement::begin(const Call& call, Piggyback* piggyback) {
  announce(call);
  is_piggybacked_ = piggyback != nullptr;
  Verdict verdict = compare_on_host();
  if (num_hosts() > 1) verdict = hear_of_all(verdict, piggyback);
  enforce(verdict);
  return verdict.calls[0].fusion;
}

Verdict Agreement::compare_on_host() {
  host_.wait_all_announced(parity());
  const std::vector<int>& ranks = topology_.host_of(rank_).ranks;
  const Call& first = host_.call(0, parity());
  Verdict verdict{0, {ranks[0], ranks[0]}, {first, first}};
  for (int i = 1; i < host_.size() && !verdict.is_mismatch; ++i) {
    const Call& other = host_.call(i, parity());
    if (other == first) {
      verdict.calls[0].fusion = std::min(verdict.calls[0].fusion, other.fusion);
    } else {
      verdict = {1, {ranks[0], ranks[i]}, {first, other}};
    }
  }
  return verdict;
}

// The first rank of each host speaks for it.
Verdict Agreement::hear_of_all(Verdict verdict, Piggyback* piggyback) {
  if (host_.rank() == 0) {
    verdict = hear_of_hosts(verdict, piggyback);
    host_.verdict() = verdict;
  } else {
    host_.wait_done(0, host_.done() + 1);
    verdict = host_.verdict();
  }
  host_.post_done();
  return verdict;
}

// After the last round each host has heard, directly or not, of every host, so a mismatch anywhere
// is known everywhere. A host that knows of one sends no more data.
Verdict Agreement::hear_of_hosts(Verdict verdict, Piggyback* piggyback) {
  constexpr std::size_t kHead = sizeof(Verdict);
  outgoing_.resize(kHead + Piggyback::kMaxBytes);
  incoming_.resize(kHead + Piggyback::kMaxBytes);
  const int hosts = num_hosts();
  const int me = topology_.host_index(rank_);
  if (piggyback && !verdict.is_mismatch) piggyback->start();
  for (int distance = 1; distance < hosts; distance *= 2) {
    const Round round(hosts, me, distance);
    const bool has_data = piggyback && !verdict.is_mismatch;
    const std::size_t sent = has_data ? piggyback->bytes_to_send(round) : 0;
    std::memcpy(outgoing_.data(), &verdict, kHead);
    if (sent > 0) piggyback->pack(round, outgoing_.data() + kHead);
    std::size_t received = 0;
    const int from = topology_.hosts()[round.from()].ranks[0];
    Batch batch(transport_);
    batch.recv_at_most(incoming_.data(), incoming_.size(), from, &received);
    batch.send(outgoing_.data(), kHead + sent, topology_.hosts()[round.to()].ranks[0]);
    batch.wait();
    Verdict other{};
    if (received >= kHead) std::memcpy(&other, incoming_.data(), kHead);
    verdict = together(verdict, other);
    const std::size_t expected =
        kHead + (piggyback && !verdict.is_mismatch ? piggyback->bytes_to_receive(round) : 0);
    if (received < kHead || (!verdict.is_mismatch && received != expected)) {
      fail(DDL_ERROR_MISMATCH, describe(from), " sent ", received, " bytes, but ", expected,
           " were expected");
    }
    if (expected > kHead) piggyback->unpack(round, incoming_.data() + kHead);
  }
  if (piggyback && !verdict.is_mismatch) piggyback->finish();
  return verdict;
}

Verdict Agreement::together(const Verdict& mine, const Verdict& other) {
  if (mine.is_mismatch) return mine;
  if (other.is_mismatch) return other;
  if (!(other.calls[0] == mine.calls[0])) {
    return {1, {mine.ranks[0], other.ranks[0]}, {mine.calls[0], other.calls[0]}};
  }
  Verdict verdict = mine;
  verdict.calls[0].fusion = std::min(mine.calls[0].fusion, other.calls[0].fusion);
  return verdict;
}

void Agreement::enforce(const Verdict& verdict) const {
  if (!verdict.is_mismatch) return;
  throw Disagreement(concat("the ranks did not make the same call: ", describe(verdict.ranks[0]),
                            " called ", ddl::describe(verdict.calls[0]), ", but ",
                            describe(verdict.ranks[1]), " called ",
                            ddl::describe(verdict.calls[1])));
}

}  // namespace ddl
