// The ranks of a host lay their lists into shared memory. The first rank of each host hears from
// the others what their ranks send to its own, compares, and speaks for its host as in every
// agreement.
#include "collective/sizes.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/arguments.h"

namespace ddl {
namespace {

class Sizes {
 public:
  Sizes(Comm& comm, std::size_t slot)
      : comm_(comm), host_(comm.host()), slot_(slot), hosts_(comm.topology().hosts()) {
    // A rank's part of a chunk has 64 bytes for every rank (choose_chunk in host_setup.cc).
    static_assert(2 * sizeof(std::uint64_t) <= 64, "the lists do not fit");
  }

  void bring(const BlockLists& lists) {
    std::uint64_t* own = of(host_.rank());
    std::copy_n(lists.send_bytes, comm_.size(), own);
    std::copy_n(lists.recv_bytes, comm_.size(), own + comm_.size());
    host_.post_arrived();
    host_.wait_all_arrived(host_.arrived());
  }

  Verdict compare_on_host() const {
    Verdict verdict{};
    for (const int from : here()) {
      const std::uint64_t* sent = of(comm_.topology().local_rank(from));
      for (const int to : here()) note(&verdict, from, to, sent[to]);
    }
    return verdict;
  }

  // Of a host's first rank.
  Verdict compare_with_hosts() const {
    std::vector<std::vector<std::uint64_t>> outgoing(hosts_.size());
    std::vector<std::vector<std::uint64_t>> incoming(hosts_.size());
    Batch batch(comm_.transport());
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      const std::vector<int>& there = hosts_[host].ranks;
      if (static_cast<int>(host) == comm_.host_index()) continue;
      incoming[host].resize(there.size() * here().size());
      for (std::size_t i = 0; i < here().size(); ++i) {
        for (const int to : there) outgoing[host].push_back(of(static_cast<int>(i))[to]);
      }
      const std::size_t nbytes = incoming[host].size() * sizeof(std::uint64_t);
      batch.recv(incoming[host].data(), nbytes, there[0]);
      batch.send(outgoing[host].data(), nbytes, there[0]);
    }
    batch.wait();
    Verdict verdict = compare_on_host();
    for (std::size_t host = 0; host < hosts_.size(); ++host) {
      auto sent = incoming[host].begin();
      if (sent == incoming[host].end()) continue;
      for (const int from : hosts_[host].ranks) {
        for (const int to : here()) note(&verdict, from, to, *sent++);
      }
    }
    return verdict;
  }

 private:
  // A rank's list: the bytes that it sends to every rank, then those that it expects of each.
  std::uint64_t* of(int local_rank) const {
    return reinterpret_cast<std::uint64_t*>(host_.input(local_rank, slot_));
  }
  const std::vector<int>& here() const { return comm_.local_ranks(); }

  // Notes the first difference: `ranks` are the sender and the receiver, `calls` have their counts.
  void note(Verdict* verdict, int from, int to, std::uint64_t sent) const {
    const std::uint64_t expected = of(comm_.topology().local_rank(to))[comm_.size() + from];
    if (verdict->is_mismatch != 0 || sent == expected) return;
    *verdict = {1, {from, to}, {}};
    verdict->calls[0].count = sent;
    verdict->calls[1].count = expected;
  }

  Comm& comm_;
  HostGroup& host_;
  std::size_t slot_;
  const std::vector<Host>& hosts_;
};

}  // namespace

void agree_on_sizes(Comm& comm, const BlockLists& lists) {
  Sizes sizes(comm, comm.host().take_slots(1));
  sizes.bring(lists);
  Verdict verdict{};
  if (comm.num_hosts() == 1) {
    verdict = sizes.compare_on_host();
  } else {
    if (comm.host().rank() == 0) verdict = sizes.compare_with_hosts();
    verdict = comm.agreement().hear_of_all(verdict);
  }
  if (verdict.is_mismatch == 0) return;
  throw Disagreement(concat("the ranks' sizes differ: ", comm.describe(verdict.ranks[0]), " sends ",
                            verdict.calls[0].count, " bytes to ", comm.describe(verdict.ranks[1]),
                            ", which expects ", verdict.calls[1].count));
}

}  // namespace ddl
