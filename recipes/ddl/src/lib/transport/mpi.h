// Messages between hosts: non-blocking MPI with a deadline, since MPI itself waits forever.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <functional>
#include <vector>

#include "peer.h"

namespace ddl {

// Throws DDL_ERROR_MPI with MPI's own words when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* what);

// A private MPI communicator; rank i of it is `peers[i]`. Owns and frees `comm`.
class MpiTransport {
 public:
  MpiTransport(MPI_Comm comm, std::vector<Peer> peers);
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  MPI_Comm comm() const { return comm_; }
  const std::vector<Peer>& peers() const { return peers_; }

  // Called now and then while waiting; throws when waiting has become pointless.
  std::function<void()> on_wait = [] {};

 private:
  MPI_Comm comm_;
  std::vector<Peer> peers_;
};

// Messages that are under way together. They belong to the batch until wait() returns; buffers must
// live as long. A batch that is destroyed early cancels what it still can.
class Batch {
 public:
  // Tags below 32768 are the user's.
  static constexpr int kCollectiveTag = 32768;
  static constexpr int kSetupTag = 32769;

  explicit Batch(MpiTransport& transport) : transport_(transport) {}
  ~Batch();
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  void send(const void* buffer, std::size_t nbytes, int peer, int tag = kCollectiveTag);
  // The message must have exactly `nbytes`.
  void recv(void* buffer, std::size_t nbytes, int peer, int tag = kCollectiveTag);
  // Element-wise minimum over the whole communicator, in place.
  void all_min(long* values, int n);

  // Throws DDL_ERROR_TIMEOUT, naming the peers, after a timeout without any progress.
  void wait();

 private:
  struct Message {
    MPI_Request request;
    int peer;  // -1: all of them
    int nbytes;
    bool is_recv;
  };
  bool test(Message& message);
  [[noreturn]] void time_out() const;

  MpiTransport& transport_;
  std::vector<Message> pending_;
};

}  // namespace ddl
