// The ranks of a communicator that share a host: their shared memory, and waiting for each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/call.h"
#include "base/peer.h"
#include "base/wait.h"
#include "transport/distance.h"
#include "transport/mpi.h"
#include "transport/shared_memory.h"
#include "transport/shared_words.h"

namespace ddl {

// Do all ranks make the same call? `calls` differ when `is_mismatch`, else both are that call.
struct Verdict {
  std::int32_t is_mismatch;
  std::int32_t ranks[2];  // in the communicator
  Call calls[2];
};

// Every rank has counters that it alone raises: `arrived` (my input lies there), `done` (my output
// lies there) and, where there are several sockets, `summed` (my part of my socket's sum lies
// there). All ranks of the group raise them equally often in every collective, so each knows from
// its own counters what to wait for.
class HostGroup {
 public:
  static constexpr std::size_t kSmallBytes = 8192;
  static constexpr std::size_t kTinyBytes = SharedMail::kTinyBytes;

  // Collective over `members` (ranks of `transport`; `me` is an index into them). Every rank gives
  // the same `sockets`, of each member, numbered from 0 without gaps; the same `chunk_bytes`, a
  // multiple of 64, and `slots` (>= 2), how many chunks can be under way. `is_far` overrides the
  // measured distance (for tests).
  HostGroup(MpiTransport& transport, const std::vector<int>& members,
            const std::vector<int>& sockets, int me, std::size_t chunk_bytes, int slots,
            std::optional<bool> is_far = std::nullopt);

  int size() const { return static_cast<int>(peers_.size()); }
  int rank() const { return me_; }
  int num_sockets() const { return num_sockets_; }
  int socket() const { return socket_; }
  // The ranks of our socket, ascending, and which of them we are.
  const std::vector<int>& neighbours() const { return neighbours_; }
  int socket_rank() const { return socket_rank_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  int slots() const { return slots_; }

  // Data areas, two or more so that one can be filled while others are read.
  // area() = the inputs of all ranks (chunk_bytes each), an output for every socket and, if these
  // are several, the sum of its inputs. Slots count on without end, round the areas.
  std::byte* area(std::size_t slot) const { return data_ + slot % slots_ * area_bytes(); }
  std::size_t area_bytes() const {
    return (peers_.size() + (num_sockets_ > 1 ? 2 * num_sockets_ : 1)) * chunk_bytes_;
  }
  std::byte* input(int rank, std::size_t slot) const { return area(slot) + rank * chunk_bytes_; }
  std::byte* output(std::size_t slot, int socket = 0) const { return input(size() + socket, slot); }
  std::byte* socket_sum(std::size_t slot, int socket) const {
    return input(size() + num_sockets_ + socket, slot);
  }
  // Lists, from the byte `offset` on, the inputs of this rank's socket, of which its own is in
  // `own` and not in the area, or the sums of all sockets.
  void list_inputs(std::size_t slot, const std::byte* own, std::size_t offset,
                   std::vector<const void*>* inputs) const;
  void list_socket_sums(std::size_t slot, std::size_t offset, std::vector<const void*>* sums) const;
  // The first of the slots for a collective of `chunks`, which all ranks take. Each goes on where
  // the one before ended, since a slot that another core has just read takes several times as long
  // to write as one that has left its caches.
  std::size_t take_slots(std::size_t chunks) {
    const std::size_t first = next_slot_;
    next_slot_ = (first + chunks) % slots_;
    return first;
  }
  // The address of the `nbytes` (<= kSmallBytes) that a rank announces. Up to kTinyBytes lie beside
  // the call.
  std::byte* small(int rank, int parity, std::size_t nbytes) const;
  const Call& call(int rank, int parity) const;
  Verdict& verdict() const;

  std::uint32_t arrived() const { return arrived_; }
  std::uint32_t done() const { return done_; }
  std::uint32_t summed() const { return summed_; }
  // Raises `arrived` like post_arrived(), and says with which call. wait_all_announced() must
  // follow.
  void announce(const Call& call, int parity);
  void wait_all_announced(int parity);
  void post_arrived();
  void post_done();
  void post_summed();
  // These throw when a rank dies, gives up, or does not come within the timeout.
  void wait_arrived(int rank, std::uint32_t target);
  void wait_done(int rank, std::uint32_t target);
  void wait_all_arrived(std::uint32_t target);
  void wait_all_done(std::uint32_t target);
  void wait_all_summed(std::uint32_t target);
  // These return at once, for ranks that have other things to do meanwhile.
  bool all_arrived(std::uint32_t target) const;
  bool all_done(std::uint32_t target) const;
  bool all_summed(std::uint32_t target) const;
  // Collective, before `nbytes` go through the areas: measures now and then whether the ranks'
  // processors are far apart.
  void look_how_far(std::size_t nbytes);
  // Whether a rank should write data for others past its caches.
  bool is_far() const;

  // The ranks of the communicator that have not raised their counters so far.
  std::vector<int> missing(std::uint32_t arrived, std::uint32_t summed, std::uint32_t done) const;
  // Throws when some rank has died or given up.
  void check_members() const;

  WaitWatcher on_wait = [](const std::vector<int>& whom, double) { return whom; };

  // Tells the others that a rank has left the group, and why: they need not wait.
  void give_up(DDL_Result code, const char* text);
  // Throws when some rank gave up.
  void check_failure() const;

 private:
  struct RankBlock;
  struct Control;
  struct Offer;
  struct Reply;

  void set_up(MpiTransport& transport, const std::vector<int>& members);
  Control& control() const;
  RankBlock& block(int rank) const;
  bool all_reached(Flag RankBlock::*flag, std::uint32_t target) const;
  void wait(Flag RankBlock::*flag, int rank, std::uint32_t target);
  void wait_slowly(Flag RankBlock::*flag, int rank, std::uint32_t target);
  void check_alive(int rank) const;

  const MpiTransport& transport_;
  std::vector<int> members_;  // ranks of the communicator
  std::vector<Peer> peers_;   // by rank in this group
  int me_;
  int num_sockets_;
  int socket_;
  std::vector<int> neighbours_;
  int socket_rank_ = 0;
  std::size_t chunk_bytes_;
  int slots_;
  SpinBudget spins_;
  SharedMemory memory_;
  std::byte* data_ = nullptr;
  std::size_t next_slot_ = 0;
  std::uint32_t arrived_ = 0;
  std::uint32_t done_ = 0;
  std::uint32_t summed_ = 0;
  std::optional<bool> is_far_;
  DistanceWatch distance_;
};

}  // namespace ddl
