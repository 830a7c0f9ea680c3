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
  if (!is_letter(tag)) {
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
  batch.send(bytes.data(), bytes.size(), dest, tags::kLetter.first);
  batch.wait();
}

int Mailbox::recv(void* buffer, std::size_t nbytes, int source, int tag) {
  return is_letter(tag) ? recv_letter(buffer, nbytes, source, tag)
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

int Mailbox::recv_letter(void* buffer, std::size_t nbytes, int source, int tag) {
  Letter letter{};
  Patience patience(transport_);
  while (!find(source, tag, &letter)) {
    patience.wait([source] { return std::vector<int>{source}; });
  }
  const std::size_t received = letter.bytes.size() - sizeof(tag);
  if (received != nbytes) {
    fail(DDL_ERROR_MISMATCH, transport_.peers()[letter.source].describe(), " sent ", received,
         " bytes, but ", nbytes, " were expected");
  }
  if (nbytes > 0) std::memcpy(buffer, letter.bytes.data() + sizeof(tag), nbytes);
  return letter.source;
}

bool Mailbox::find(int source, int tag, Letter* found) {
  // One thread looks at a time, so that letters of one rank stay in their order.
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_wanted = [=](const Letter& letter) {
    return letter.tag == tag && (source == Batch::kAnyRank || letter.source == source);
  };
  const auto kept = std::find_if(letters_.begin(), letters_.end(), is_wanted);
  if (kept != letters_.end()) {
    *found = std::move(*kept);
    letters_.erase(kept);
    return true;
  }
  while (true) {
    Letter letter{};
    Batch batch(transport_);
    const std::optional<int> sender = batch.try_recv(source, tags::kLetter.first, &letter.bytes);
    if (!sender) return false;
    letter.source = *sender;
    std::memcpy(&letter.tag, letter.bytes.data(), sizeof(letter.tag));
    if (is_wanted(letter)) {
      *found = std::move(letter);
      return true;
    }
    letters_.push_back(std::move(letter));
  }
}

}  // namespace ddl
