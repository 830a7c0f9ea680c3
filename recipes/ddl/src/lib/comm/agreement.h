// The agreement of a communicator's ranks on each call, and the news that one of them is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/error.h"
#include "comm/round.h"
#include "topology/topology.h"
#include "transport/failure_detector.h"
#include "transport/host_group.h"
#include "transport/mpi.h"

namespace ddl {

// The ranks did not make the same call. All of them know and nothing was moved, so the communicator
// stays usable, unlike after any other error.
class Disagreement : public Error {
 public:
  explicit Disagreement(const std::string& message) : Error(DDL_ERROR_MISMATCH, message) {}
};

// Data that travel with the agreement between hosts (piggybacking). Each host's first rank speaks
// for it. The calls under way are the same on both ends of a message, or the data do not count.
class Piggyback {
 public:
  // Bytes of a message at most.
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 10;

  virtual ~Piggyback() = default;
  // All ranks of the host have come, for the same call.
  virtual void start() = 0;
  // The bytes of the messages that go and come in a round.
  virtual std::size_t bytes_to_send(const Round& round) const = 0;
  virtual std::size_t bytes_to_receive(const Round& round) const = 0;
  virtual void pack(const Round& round, std::byte* to) const = 0;
  virtual void unpack(const Round& round, const std::byte* from) = 0;
  // All hosts have made the same call. The other ranks of the host read the result afterwards.
  virtual void finish() {}
};

class Agreement {
 public:
  // Collective over the communicator. It hooks into the waits of `host` and `transport`, which must
  // stay where they are as long as it lives.
  Agreement(HostGroup& host, MpiTransport& transport, const Topology& topology);
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  // Returns when all ranks have entered and made the same call; throws Disagreement on all if not.
  // The result is the least `fusion` of all ranks. Between hosts, the data of `piggyback` go along.
  std::uint32_t begin(const Call& call, Piggyback* piggyback = nullptr);

  // begin() in two halves, for collectives within one host that bring their input along.
  void announce(const Call& call);
  void agree_on_host();
  // Collective, where there are several hosts: the verdict of a host's first rank goes to all ranks
  // of all hosts, and a mismatch goes before none. The others' `verdict` is not looked at.
  Verdict hear_of_all(Verdict verdict, Piggyback* piggyback = nullptr);
  // Tells apart the two buffers in which consecutive calls announce their input.
  int parity() const { return static_cast<int>(num_calls_ & 1); }

  std::uint64_t num_calls() const { return num_calls_; }
  // Whether data travelled with the last agreement.
  bool is_piggybacked() const { return is_piggybacked_; }
  // The bytes of the call under way, in all: its schedule is chosen by them.
  std::size_t call_bytes() const;

  // Announces calls from now on as fused of the parts with this `fingerprint`; 0: not fused.
  void announce_as_fused(std::uint32_t fingerprint) { fusion_fingerprint_ = fingerprint; }
  // The call as the others see it.
  Call announced(Call call) const;

  // Throws when an earlier error has made the communicator unusable.
  void check_usable();
  bool is_usable();
  // Lets no later call succeed, and tells the others that this rank gave up, and why. These take
  // no memory, since there may be none.
  void give_up(const Error& error);
  void tell_others(const Error& error);

 private:
  void watch_waits();
  std::string describe(int rank) const { return transport_.peers()[rank].describe(); }
  int num_hosts() const { return static_cast<int>(topology_.hosts().size()); }
  Verdict compare_on_host();
  Verdict hear_of_hosts(Verdict verdict, Piggyback* piggyback);
  static Verdict together(const Verdict& mine, const Verdict& other);
  void enforce(const Verdict& verdict) const;

  HostGroup& host_;
  MpiTransport& transport_;
  const Topology& topology_;
  const int rank_;
  const std::string name_;
  std::unique_ptr<FailureDetector> failure_detector_;  // null on one host
  std::uint64_t num_calls_ = 0;
  bool is_piggybacked_ = false;
  Call call_;  // under way
  std::uint32_t fusion_fingerprint_ = 0;
  std::vector<std::byte> outgoing_;  // a verdict, and the data that go along
  std::vector<std::byte> incoming_;
  std::mutex failure_mutex_;
  std::optional<Error> failure_;
};

}  // namespace ddl
