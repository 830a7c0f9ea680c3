// Messages between hosts: non-blocking MPI with a deadline, since MPI itself waits forever.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/peer.h"
#include "base/wait.h"
#include "timeline/timeline.h"
#include "transport/mpi_error.h"
#include "transport/tags.h"

namespace ddl {

// An MPI communicator; rank i of it is `peers[i]`.
class MpiTransport {
 public:
  // A private one is freed at the end; a borrowed one is left as it was; an abandoned one stays.
  enum class Use { kPrivate, kBorrowed, kAbandoned };
  MpiTransport(MPI_Comm comm, std::vector<Peer> peers, Use use = Use::kPrivate);
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  // Messages may be under way still. MPI would give the number of a communicator that it frees to
  // the next one, which would then receive them.
  void abandon() { use_ = Use::kAbandoned; }

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  const std::vector<Peer>& peers() const { return peers_; }

  WaitWatcher on_wait = [](const std::vector<int>& whom, double) { return whom; };
  // Called when MPI ends the process because of an error.
  std::function<void(const Error&)> on_end = [](const Error&) {};

  // Records the messages; null: none does.
  Timeline* timeline = nullptr;

 private:
  MPI_Comm comm_;
  int rank_ = 0;
  std::vector<Peer> peers_;
  Use use_;
  MPI_Errhandler before_ = MPI_ERRHANDLER_NULL;  // of a borrowed one
};

// Messages that are under way together. They belong to the batch until they complete; buffers must
// live as long. A batch that is destroyed early cancels the messages that it still can.
class Batch {
 public:
  // The peer of a recv from whichever rank sends first. The message has at most kMaxPiece bytes.
  static constexpr int kAnyRank = -1;
  // MPI's counts are ints; longer messages go in pieces.
  static constexpr std::size_t kMaxPiece = std::size_t{1} << 30;

  explicit Batch(MpiTransport& transport) : transport_(transport) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // poll() reports `id` when the message has gone or come.
  void send(const void* buffer, std::size_t nbytes, int peer, int tag = tags::kCollective.first,
            std::uint64_t id = 0);
  // The message must have exactly `nbytes`.
  void recv(void* buffer, std::size_t nbytes, int peer, int tag = tags::kCollective.first,
            std::uint64_t id = 0);
  // The message has up to `nbytes` (<= kMaxPiece); *received is how many it has, once it has come.
  void recv_at_most(void* buffer, std::size_t nbytes, int peer, std::size_t* received,
                    int tag = tags::kCollective.first);
  // Receives the whole of the next message from `peer` (or kAnyRank) with this tag, once it is
  // there: then *bytes has it, and the result is its rank.
  std::optional<int> try_recv(int peer, int tag, std::vector<std::byte>* bytes);
  // The rank that the receive from kAnyRank which completed last had its message from.
  int sender() const { return sender_; }
  // Element-wise minimum over the whole communicator, in place.
  void all_min(long* values, int n);
  // `nbytes` of every rank, in the order of ranks, to `all`.
  void all_gather(const void* own, std::size_t nbytes, void* all);

  // Calls `on_complete(id)` for messages that have completed since; returns whether there were any.
  // on_complete may add messages.
  bool poll(const std::function<void(std::uint64_t id)>& on_complete);
  bool is_empty() const { return requests_.empty() && waiting_.empty(); }
  // Throws DDL_ERROR_TIMEOUT, naming the peers, after a timeout, and `more` seconds, without any
  // progress.
  void wait(double more = 0);
  // The ranks to which the messages under way go, or from which they come; -1: all ranks, or any.
  std::vector<int> awaited() const;
  // Finds out who is lost, for a process that MPI ends, in at most half of the timeout.
  void explain_end() const;

 private:
  struct Message {
    int peer;  // -1: all of them, or any
    int nbytes;
    bool is_recv;
    std::uint64_t id;
    Clock::time_point begin;          // where it is recorded
    std::size_t* received = nullptr;  // where it may be shorter
  };
  // A send that MPI has not taken yet.
  struct Waiting {
    const void* buffer;
    int tag;
    Message message;
  };
  // Both lists get longer, or neither. The request is MPI's to set.
  MPI_Request* add(const Message& message);
  bool post(const Waiting& send);
  bool post_waiting();
  void check(const Message& message, const MPI_Status& status, int code) const;
  bool is_recorded(std::size_t nbytes) const {
    return transport_.timeline != nullptr && nbytes >= Timeline::kLeastMessage;
  }
  Clock::time_point begin_of(std::size_t nbytes) const {
    return is_recorded(nbytes) ? Clock::now() : Clock::time_point();
  }
  void record(const Message& message, Clock::time_point end) const;

  MpiTransport& transport_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // messages_[i] is requests_[i]
  std::deque<Waiting> waiting_;
  Clock::time_point last_try_;
  int sender_ = kAnyRank;
  std::vector<int> completed_;
  std::vector<MPI_Status> statuses_;
};

// Waits for the network: it yields at first, then sleeps the longer, the longer nothing comes. A
// message is seen at most an eighth later than it could be, at next to no cost.
class PollBackoff {
 public:
  // `what` of a rank is awaited: "" or a text that its name completes. `more`: seconds that are
  // added to the timeout.
  explicit PollBackoff(MpiTransport& transport, const char* what = "", double more = 0)
      : transport_(transport), what_(what), more_(more) {}
  void start_over();
  // Called when nothing moved. Looks around now and then (on_wait); throws DDL_ERROR_TIMEOUT once
  // nothing has moved for the timeout, which is for `whom()`.
  void wait(const std::function<std::vector<int>()>& whom);

 private:
  MpiTransport& transport_;
  const char* what_;
  double more_;
  Clock::time_point last_progress_ = Clock::now();
  Clock::time_point last_look_ = last_progress_;
  Waited waited_{last_progress_};  // without progress
};

}  // namespace ddl
