#include "transport/mailbox.h"

#include <algorithm>
#include <cstring>

namespace ddl {
namespace {

int greatest_tag_of_mpi(MPI_Comm comm) {
  int* greatest = nullptr;
  int is_set = 0;
  check_mpi(MPI_Comm_get_attr(comm, MPI_TAG_UB, &greatest, &is_set), "MPI_Comm_get_attr");
  return is_set != 0 ? *greatest : 32767;
}

}  // namespace

Mailbox::Mailbox(MpiTransport& transport)
    : transport_(transport),
      last_direct_(greatest_tag_of_mpi(transport.comm()) - tags::kDirect.first) {}

void Mailbox::send(const void* buffer, std::size_t nbytes, int dest, int tag) {
  Batch batch(transport_);
  if (!has_large_tag(tag)) {
    batch.send(buffer, nbytes, dest, tags::kDirect.at(tag));
    batch.wait();
    return;
  }
  if (nbytes > Batch::kMaxPiece - sizeof(tag)) {
    fail(DDL_ERROR_ARGUMENT, "send: a message of ", nbytes, " bytes with the tag ", tag,
         "; this MPI has tags up to ", last_direct_, " for messages of 1 GiB and more");
  }
  std::vector<std::byte> bytes(sizeof(tag) + nbytes);
  std::memcpy(bytes.data(), &tag, sizeof(tag));
  if (nbytes > 0) std::memcpy(bytes.data() + sizeof(tag), buffer, nbytes);
  batch.send(bytes.data(), bytes.size(), dest, tags::kLargeTag.first);
  batch.wait();
}

int Mailbox::recv(void* buffer, std::size_t nbytes, int source, int tag) {
  return has_large_tag(tag) ? recv_large_tag(buffer, nbytes, source, tag)
                            : recv_directly(buffer, nbytes, source, tag);
}

int Mailbox::recv_directly(void* buffer, std::size_t nbytes, int source, int tag) {
  Batch batch(transport_);
  // Only the first piece may come from any rank; it tells whose the others are.
  const std::size_t first = source == Batch::kAnyRank ? std::min(nbytes, Batch::kMaxPiece) : nbytes;
  batch.recv(buffer, first, source, tags::kDirect.at(tag));
  batch.wait();
  if (source == Batch::kAnyRank) source = batch.sender();
  if (first < nbytes) {
    batch.recv(static_cast<std::byte*>(buffer) + first, nbytes - first, source,
               tags::kDirect.at(tag));
    batch.wait();
  }
  return source;
}

int Mailbox::recv_large_tag(void* buffer, std::size_t nbytes, int source, int tag) {
  LargeTagMessage message{};
  PollBackoff backoff(transport_);
  // Messages for other receives are no progress: the time goes on while they come.
  while (!find(source, tag, &message)) {
    backoff.wait([source] { return std::vector<int>{source}; });
  }
  const std::size_t received = message.bytes.size() - sizeof(tag);
  if (received != nbytes) {
    fail(DDL_ERROR_MISMATCH, transport_.peers()[message.source].describe(), " sent ", received,
         " bytes, but ", nbytes, " were expected");
  }
  if (nbytes > 0) std::memcpy(buffer, message.bytes.data() + sizeof(tag), nbytes);
  return message.source;
}

bool Mailbox::find(int source, int tag, LargeTagMessage* found) {
  // One thread looks at a time, so that messages of one rank stay in their order.
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_wanted = [=](const LargeTagMessage& message) {
    return message.tag == tag && (source == Batch::kAnyRank || message.source == source);
  };
  // First: these have come before any that MPI still has.
  const auto kept = std::find_if(large_tag_messages_.begin(), large_tag_messages_.end(), is_wanted);
  if (kept != large_tag_messages_.end()) {
    *found = std::move(*kept);
    large_tag_messages_.erase(kept);
    return true;
  }
  while (true) {
    LargeTagMessage message{};
    Batch batch(transport_);
    const std::optional<int> sender = batch.try_recv(source, tags::kLargeTag.first, &message.bytes);
    if (!sender) return false;
    message.source = *sender;
    std::memcpy(&message.tag, message.bytes.data(), sizeof(message.tag));
    if (is_wanted(message)) {
      *found = std::move(message);
      return true;
    }
    large_tag_messages_.push_back(std::move(message));
  }
}

}  // namespace ddl
