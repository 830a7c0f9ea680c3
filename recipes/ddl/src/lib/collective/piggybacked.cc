#include "collective/piggybacked.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "collective/divisors.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

// A small collective on this host. Its ranks bring what they have, and the result of all hosts lies
// in one output area, which nobody writes again before all ranks have come to a later call. So no
// slot is taken: ranks that disagree would take different numbers of them.
class SmallCall : public Piggyback {
 public:
  SmallCall(Comm& comm, std::size_t nbytes)
      : comm_(comm),
        host_(comm.host()),
        nbytes_(nbytes),
        parity_(comm.agreement().parity() ^ 1),  // of the call that begin() announces
        area_(host_.output(host_.take_slots(0))) {}

  void bring(const void* data) {
    std::memcpy(host_.small(host_.rank(), parity_, nbytes_), data, nbytes_);
  }
  const std::byte* result() const { return area_; }

 protected:
  const std::byte* input(int rank) const { return host_.small(rank, parity_, nbytes_); }
  const std::vector<Host>& hosts() const { return comm_.topology().hosts(); }

  Comm& comm_;
  HostGroup& host_;
  std::size_t nbytes_;  // of a rank
  int parity_;
  std::byte* area_;
};

// Every host gets the blocks of all. They lie one after the other, in the order of hosts.
class Gathering : public SmallCall {
 public:
  using SmallCall::SmallCall;

  std::size_t bytes_to_send(const Round& round) const override {
    return sum([&](int host) { return round.is_sent(host); });
  }
  std::size_t bytes_to_receive(const Round& round) const override {
    return sum([&](int host) { return round.is_received(host); });
  }
  void pack(const Round& round, std::byte* to) const override {
    for (int host = 0; host < comm_.num_hosts(); ++host) {
      if (!round.is_sent(host)) continue;
      std::memcpy(to, block(host), size(host));
      to += size(host);
    }
  }
  void unpack(const Round& round, const std::byte* from) override {
    for (int host = 0; host < comm_.num_hosts(); ++host) {
      if (!round.is_received(host)) continue;
      std::memcpy(area_ + offset(host), from, size(host));
      from += size(host);
    }
  }

 protected:
  virtual std::size_t size(int host) const = 0;
  virtual std::size_t offset(int host) const = 0;
  const std::byte* block(int host) const { return area_ + offset(host); }
  std::byte* own_block() const { return area_ + offset(comm_.host_index()); }

 private:
  template <class Filter>
  std::size_t sum(const Filter& filter) const {
    std::size_t bytes = 0;
    for (int host = 0; host < comm_.num_hosts(); ++host) bytes += filter(host) ? size(host) : 0;
    return bytes;
  }
};

// What the root's host has passes from host to host.
class SmallBroadcast final : public SmallCall {
 public:
  SmallBroadcast(Comm& comm, const Arguments& args)
      : SmallCall(comm, args.count),
        root_(comm.topology().local_rank(args.root)),
        root_host_(comm.topology().host_index(args.root)) {}

  void start() override {
    if (comm_.host_index() == root_host_) std::memcpy(area_, input(root_), nbytes_);
  }
  std::size_t bytes_to_send(const Round& round) const override {
    return round.is_sent(root_host_) ? nbytes_ : 0;
  }
  std::size_t bytes_to_receive(const Round& round) const override {
    return round.is_received(root_host_) ? nbytes_ : 0;
  }
  void pack(const Round&, std::byte* to) const override { std::memcpy(to, area_, nbytes_); }
  void unpack(const Round&, const std::byte* from) override { std::memcpy(area_, from, nbytes_); }

 private:
  int root_;  // on its host
  int root_host_;
};

class SmallAllgather final : public Gathering {
 public:
  SmallAllgather(Comm& comm, std::size_t nbytes) : Gathering(comm, nbytes) {
    offsets_.reserve(hosts().size());
    std::size_t offset = 0;
    for (const Host& host : hosts()) {
      offsets_.push_back(offset);
      offset += host.ranks.size() * nbytes;
    }
  }

  void start() override {
    for (int rank = 0; rank < host_.size(); ++rank) {
      std::memcpy(own_block() + rank * nbytes_, input(rank), nbytes_);
    }
  }

  void deliver(std::byte* recv) const {
    for (int i = 0; i < comm_.num_hosts(); ++i) {
      const std::byte* from = block(i);
      for (const int rank : hosts()[i].ranks) {
        std::memcpy(recv + rank * nbytes_, from, nbytes_);
        from += nbytes_;
      }
    }
  }

 private:
  std::size_t size(int host) const override { return hosts()[host].ranks.size() * nbytes_; }
  std::size_t offset(int host) const override { return offsets_[host]; }

  std::vector<std::size_t> offsets_;
};

// The operation of a call.
class SmallReduction {
 public:
  SmallReduction(const Arguments& args, int ranks)
      : divisors(ranks, args), count_(args.count), reduce_(reduce_function(args.type, args.op)) {}

  // `sum` of `input(0)` to `input(n - 1)`, of which it may be the first.
  template <class Input>
  void run(std::byte* sum, int n, const Input& input, double divisor) {
    inputs_.clear();
    for (int i = 0; i < n; ++i) inputs_.push_back(input(i));
    reduce_(sum, inputs_.data(), n, count_, divisor);
  }

  const Divisors divisors;

 private:
  std::size_t count_;
  ReduceFunction reduce_;
  std::vector<const void*> inputs_;
};

// Pairs of hosts exchange their sums (recursive doubling): both add them in the order of hosts, so
// that all hosts come to the same bits.
class PairwiseSum final : public SmallCall {
 public:
  PairwiseSum(Comm& comm, const Arguments& args)
      : SmallCall(comm, args.nbytes()), reduction_(args, comm.size()) {}

  void start() override {
    const auto of_rank = [this](int rank) { return input(rank); };
    reduction_.run(area_, host_.size(), of_rank, reduction_.divisors.first);
  }
  std::size_t bytes_to_send(const Round&) const override { return nbytes_; }
  std::size_t bytes_to_receive(const Round&) const override { return nbytes_; }
  void pack(const Round&, std::byte* to) const override { std::memcpy(to, area_, nbytes_); }
  void unpack(const Round& round, const std::byte* from) override {
    const bool is_first = comm_.host_index() < round.from();
    const auto of_host = [&](int i) { return (i == 0) == is_first ? area_ : from; };
    reduction_.run(area_, 2, of_host, round.is_last() ? reduction_.divisors.last : 1.0);
  }

 private:
  SmallReduction reduction_;
};

// Each host gets the sums of all hosts and adds them, in the order of hosts.
class GatheredSum final : public Gathering {
 public:
  GatheredSum(Comm& comm, const Arguments& args)
      : Gathering(comm, args.nbytes()), reduction_(args, comm.size()) {}

  void start() override {
    const auto of_rank = [this](int rank) { return input(rank); };
    reduction_.run(own_block(), host_.size(), of_rank, reduction_.divisors.first);
  }
  void finish() override {
    const auto of_host = [this](int host) { return block(host); };
    reduction_.run(area_, comm_.num_hosts(), of_host, reduction_.divisors.last);
  }

 private:
  std::size_t size(int) const override { return nbytes_; }
  std::size_t offset(int host) const override { return host * nbytes_; }

  SmallReduction reduction_;
};

// `blocks` of `nbytes` come together on each host.
bool is_small(const Comm& comm, std::size_t nbytes, std::size_t blocks) {
  return nbytes > 0 && nbytes <= comm.small_bytes() && blocks * nbytes <= Piggyback::kMaxBytes &&
         blocks * nbytes <= comm.host().chunk_bytes();
}

// Up to so many bytes, the sums of all hosts go to each of them. They are added in one step, so
// 16-bit floats are rounded once.
constexpr std::size_t kMaxGathered = 4096;

template <class Sum>
std::uint32_t reduce(Comm& comm, const Call& call, const Arguments& args, bool has_result) {
  Sum sum(comm, args);
  sum.bring(args.send);
  const std::uint32_t fusion = comm.agreement().begin(call, &sum);
  if (has_result) std::memcpy(args.recv, sum.result(), args.nbytes());
  return fusion;
}

std::optional<std::uint32_t> reduce(Comm& comm, const Call& call, const Arguments& args,
                                    bool has_result) {
  const std::size_t hosts = comm.num_hosts();
  const bool is_pairwise = Round(comm.num_hosts(), comm.host_index(), 1).is_pairwise() &&
                           hosts * args.nbytes() > kMaxGathered;
  if (!is_small(comm, args.nbytes(), is_pairwise ? 1 : hosts)) return std::nullopt;
  return is_pairwise ? reduce<PairwiseSum>(comm, call, args, has_result)
                     : reduce<GatheredSum>(comm, call, args, has_result);
}

}  // namespace

std::optional<std::uint32_t> allreduce_piggybacked(Comm& comm, const Call& call,
                                                   const Arguments& args) {
  return reduce(comm, call, args, true);
}

bool reduce_piggybacked(Comm& comm, const Call& call, const Arguments& args) {
  return reduce(comm, call, args, comm.rank() == args.root).has_value();
}

bool broadcast_piggybacked(Comm& comm, const Call& call, const Arguments& args) {
  if (!is_small(comm, args.count, 1)) return false;
  SmallBroadcast broadcast(comm, args);
  if (comm.rank() == args.root) broadcast.bring(args.send);
  comm.agreement().begin(call, &broadcast);
  if (comm.rank() != args.root) std::memcpy(args.recv, broadcast.result(), args.count);
  return true;
}

bool allgather_piggybacked(Comm& comm, const Call& call, const Arguments& args) {
  if (!is_small(comm, args.count, comm.size())) return false;
  SmallAllgather gathering(comm, args.count);
  gathering.bring(args.send);
  comm.agreement().begin(call, &gathering);
  gathering.deliver(static_cast<std::byte*>(args.recv));
  return true;
}

}  // namespace ddl
