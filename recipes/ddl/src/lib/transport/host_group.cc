#include "transport/host_group.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>

#include "base/timeout.h"

namespace ddl {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kPolls = 100;  // some 5 us

std::size_t round_up(std::size_t n, std::size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

struct HostGroup::RankBlock {
  Flag arrived;
  Flag done;
  Flag summed;
  SharedMail mails[2];
  SharedProcess process;
};

struct HostGroup::Control {
  std::uint64_t nonce;
  Verdict verdict;
  SharedDistance distance;
  SharedFailure failure;
};

// The first rank's message to the others, and their answer.
struct HostGroup::Offer {
  pid_t pid;
  int fd;  // -1: it has failed
  std::uint64_t bytes;
  std::uint64_t nonce;
};

struct HostGroup::Reply {
  int is_ok;
};

HostGroup::HostGroup(MpiTransport& transport, const std::vector<int>& members,
                     const std::vector<int>& sockets, int me, std::size_t chunk_bytes, int slots,
                     std::optional<bool> is_far)
    : transport_(transport),
      members_(members),
      me_(me),
      num_sockets_(*std::max_element(sockets.begin(), sockets.end()) + 1),
      socket_(sockets[me]),
      chunk_bytes_(chunk_bytes),
      slots_(slots),
      spins_(static_cast<int>(members.size())),
      is_far_(is_far),
      distance_(me, static_cast<int>(members.size())) {
  for (const int member : members) peers_.push_back(transport.peers()[member]);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == me_) socket_rank_ = static_cast<int>(neighbours_.size());
    if (sockets[rank] == socket_) neighbours_.push_back(rank);
  }
  set_up(transport, members);
  // At last: nobody takes a rank for dead that has no process yet.
  block(me_).process.set(ProcessName::own());
}

void HostGroup::list_inputs(std::size_t slot, const std::byte* own, std::size_t offset,
                            std::vector<const void*>* inputs) const {
  inputs->clear();
  for (const int rank : neighbours_) {
    inputs->push_back((rank == me_ ? own : input(rank, slot)) + offset);
  }
}

void HostGroup::list_socket_sums(std::size_t slot, std::size_t offset,
                                 std::vector<const void*>* sums) const {
  sums->clear();
  for (int socket = 0; socket < num_sockets_; ++socket) {
    sums->push_back(socket_sum(slot, socket) + offset);
  }
}

void HostGroup::set_up(MpiTransport& transport, const std::vector<int>& members) {
  const std::size_t head =
      round_up(round_up(sizeof(Control), 64) + members.size() * sizeof(RankBlock), kPage);
  const std::size_t bytes = head + members.size() * 2 * kSmallBytes + slots_ * area_bytes();
  std::optional<Error> error;

  if (me_ == 0) {
    Offer offer{getpid(), -1, bytes, 0};
    try {
      memory_ = SharedMemory::create(bytes);
      std::random_device random;
      offer.nonce = (std::uint64_t{random()} << 32) | random();
      offer.fd = memory_.fd();
      control().nonce = offer.nonce;
    } catch (...) {
      with_current_error([&](const Error& e) { error = e; });
    }
    std::vector<Reply> replies(members.size(), Reply{0});
    Batch batch(transport);
    for (int i = 1; i < size(); ++i) {
      // Sent without memory, too (its file is -1 then): the others wait for an offer.
      batch.send(&offer, sizeof(offer), members[i], tags::kSetup.first);
      batch.recv(&replies[i], sizeof(Reply), members[i], tags::kSetup.first);
    }
    batch.wait();
    for (int i = 1; i < size() && !error; ++i) {
      if (!replies[i].is_ok) {
        error = Error(DDL_ERROR_SYSTEM, peers_[i].describe() + " cannot map the shared memory of " +
                                            peers_[0].describe() + "; see its message");
      }
    }
  } else {
    Offer offer{};
    Batch receive(transport);
    receive.recv(&offer, sizeof(offer), members[0], tags::kSetup.first);
    receive.wait();
    try {
      if (offer.fd < 0) {
        fail(DDL_ERROR_SYSTEM, peers_[0].describe(), " could not create shared memory");
      }
      // In another PID namespace, this path may lead to another program's memory: hence the nonce.
      memory_ = SharedMemory::open(offer.pid, offer.fd, bytes);
      if (offer.bytes != bytes || control().nonce != offer.nonce) {
        fail(DDL_ERROR_SYSTEM, peers_[0].describe(),
             " is on another machine of the same name, or in another PID namespace");
      }
    } catch (...) {
      with_current_error([&](const Error& e) { error = e; });
    }
    // After an error, too: the first rank waits for every answer.
    const Reply reply{error ? 0 : 1};
    Batch answer(transport);
    answer.send(&reply, sizeof(reply), members[0], tags::kSetup.first);
    answer.wait();
  }
  if (error) throw *error;
  // The mapping stays. When the first rank comes here, all others have opened its file.
  memory_.close_file();
  data_ = memory_.data() + head + members.size() * 2 * kSmallBytes;
}

HostGroup::Control& HostGroup::control() const {
  return *reinterpret_cast<Control*>(memory_.data());
}

HostGroup::RankBlock& HostGroup::block(int rank) const {
  auto* blocks = reinterpret_cast<RankBlock*>(memory_.data() + round_up(sizeof(Control), 64));
  return blocks[rank];
}

std::byte* HostGroup::small(int rank, int parity, std::size_t nbytes) const {
  if (nbytes <= kTinyBytes) return block(rank).mails[parity].tiny();
  // Two for each rank lie before the areas, by rank and parity.
  return data_ - (2 * (size() - rank) - parity) * kSmallBytes;
}

const Call& HostGroup::call(int rank, int parity) const { return block(rank).mails[parity].call(); }

Verdict& HostGroup::verdict() const { return control().verdict; }

void HostGroup::announce(const Call& call, int parity) {
  // The mail comes first: who sees the flag may read it.
  block(me_).mails[parity].write(call, ++arrived_);
  block(me_).arrived.set(arrived_);
}

// Ranks that come at about the same time are seen before the processor has written this rank's own
// flag, for which wake() waits.
void HostGroup::wait_all_announced(int parity) {
  // So many for all ranks together. Late ones are waited for by their flags, below.
  int polls = std::min(spins_.spins(), kPolls);
  for (int rank = 0; rank < size(); ++rank) {
    const SharedMail& theirs = block(rank).mails[parity];
    while (!theirs.is_of(arrived_) && --polls > 0) cpu_relax();
  }
  block(me_).arrived.wake();
  if (polls <= 0) wait_all_arrived(arrived_);
}

void HostGroup::post_arrived() { block(me_).arrived.post(++arrived_); }

void HostGroup::post_done() { block(me_).done.post(++done_); }

void HostGroup::post_summed() { block(me_).summed.post(++summed_); }

void HostGroup::wait_arrived(int rank, std::uint32_t target) {
  wait(&RankBlock::arrived, rank, target);
}

void HostGroup::wait_done(int rank, std::uint32_t target) { wait(&RankBlock::done, rank, target); }

void HostGroup::wait_all_arrived(std::uint32_t target) {
  for (int rank = 0; rank < size(); ++rank) wait(&RankBlock::arrived, rank, target);
}

void HostGroup::wait_all_done(std::uint32_t target) {
  for (int rank = 0; rank < size(); ++rank) wait(&RankBlock::done, rank, target);
}

void HostGroup::wait_all_summed(std::uint32_t target) {
  for (int rank = 0; rank < size(); ++rank) wait(&RankBlock::summed, rank, target);
}

bool HostGroup::all_reached(Flag RankBlock::*flag, std::uint32_t target) const {
  for (int rank = 0; rank < size(); ++rank) {
    if (!(block(rank).*flag).reached(target)) return false;
  }
  return true;
}

bool HostGroup::all_arrived(std::uint32_t target) const {
  return all_reached(&RankBlock::arrived, target);
}

bool HostGroup::all_done(std::uint32_t target) const {
  return all_reached(&RankBlock::done, target);
}

bool HostGroup::all_summed(std::uint32_t target) const {
  return all_reached(&RankBlock::summed, target);
}

void HostGroup::look_how_far(std::size_t nbytes) {
  if (!is_far_ && spins_.has_cores()) distance_.look(&control().distance, nbytes);
}

bool HostGroup::is_far() const {
  // Relaxed: an old value costs time, and nothing else.
  return is_far_.value_or(control().distance.is_far.load(std::memory_order_relaxed));
}

std::vector<int> HostGroup::missing(std::uint32_t arrived, std::uint32_t summed,
                                    std::uint32_t done) const {
  std::vector<int> who;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == me_) continue;  // it comes late because others do
    const RankBlock& other = block(rank);
    if (other.arrived.reached(arrived) && other.summed.reached(summed) &&
        other.done.reached(done)) {
      continue;
    }
    who.push_back(members_[rank]);
  }
  return who;
}

void HostGroup::check_members() const {
  check_failure();
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != me_) check_alive(rank);
  }
}

void HostGroup::wait(Flag RankBlock::*flag, int rank, std::uint32_t target) {
  if ((block(rank).*flag).reached(target)) return;
  wait_slowly(flag, rank, target);
}

void HostGroup::wait_slowly(Flag RankBlock::*flag, int rank, std::uint32_t target) {
  Waited waited;
  while (!(block(rank).*flag).wait_a_while(target, spins_)) {
    // In this order: a rank that gave up has said why before it ended.
    check_failure();
    check_alive(rank);
    const double idle = waited.seconds();
    std::vector<int> whom;
    for (int other = 0; other < size(); ++other) {
      if (other != me_ && !(block(other).*flag).reached(target)) whom.push_back(members_[other]);
    }
    const std::vector<int> lost = on_wait(whom, idle);
    const double limit = wait_limit();
    // All may have come since the wait above has ended.
    if (idle < limit || whom.empty()) continue;
    fail(DDL_ERROR_TIMEOUT, describe(transport_.peers(), lost), " did not arrive within ", limit,
         " s; it is slow, stuck or in another call (the limit is set by DDL_TIMEOUT or -timeout)");
  }
}

void HostGroup::check_alive(int rank) const {
  const ProcessName process = block(rank).process.get();
  if (!process.has_ended()) return;
  fail(DDL_ERROR_PEER_LOST, peers_[rank].describe(), " has died (process ", process.pid(), ")");
}

void HostGroup::give_up(DDL_Result code, const char* text) { control().failure.set(code, text); }

void HostGroup::check_failure() const {
  const SharedFailure& failure = control().failure;
  if (!failure.is_set()) return;
  throw Relayed(static_cast<DDL_Result>(failure.code()), failure.text());
}

}  // namespace ddl
