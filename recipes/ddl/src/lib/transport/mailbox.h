// Messages from one rank to another with the tags of programs, which may be any from 0 to 2^31 - 1.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "transport/mpi.h"

namespace ddl {

class Mailbox {
 public:
  explicit Mailbox(MpiTransport& transport);

  // Returns when `buffer` may be used again; throws as Batch::wait does.
  void send(const void* buffer, std::size_t nbytes, int dest, int tag);
  // `source` may be Batch::kAnyRank. Returns the rank that the message came from. The message must
  // have exactly `nbytes`.
  int recv(void* buffer, std::size_t nbytes, int source, int tag);

 private:
  // MPI promises tags up to 32767 and usually has some bits less than an int. A message with a
  // greater tag has it before its bytes, and all such messages have one tag of MPI's. A rank that
  // looks for one of them keeps those that come before it.
  struct LargeTagMessage {
    int source;
    int tag;
    std::vector<std::byte> bytes;  // with the tag before them
  };

  bool has_large_tag(int tag) const { return tag > last_direct_; }
  int recv_directly(void* buffer, std::size_t nbytes, int source, int tag);
  int recv_large_tag(void* buffer, std::size_t nbytes, int source, int tag);
  // Takes the message out of those that have come, or else from MPI.
  bool find(int source, int tag, LargeTagMessage* found);

  MpiTransport& transport_;
  int last_direct_;  // the greatest tag that MPI carries
  std::mutex mutex_;
  std::deque<LargeTagMessage> large_tag_messages_;  // in the order in which they came
};

}  // namespace ddl
