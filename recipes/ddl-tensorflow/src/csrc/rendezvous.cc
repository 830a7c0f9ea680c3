#include "rendezvous.h"

#include <ddl/ddl.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "status.h"

namespace ddl_tensorflow {
namespace {

enum class Word : char { kHere, kAllAreHere, kGaveUp, kGone };

// A message this short goes whether or not it is awaited.
void tell_others(int rank, int size, Word word) {
  for (int other = 0; other < size; ++other) {
    if (other != rank) ddl_comm_send(DDL_COMM_WORLD, &word, sizeof word, other, kTag);
  }
}

absl::Status hear_others(int rank, int size, Word expected) {
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    Word word = expected;
    const DDL_Result result = ddl_comm_recv(DDL_COMM_WORLD, &word, sizeof word, other, kTag);
    const std::string who = absl::StrCat("rank ", other);
    if (result != DDL_SUCCESS) {
      return to_status(result, absl::StrCat("waiting for the first operation of ", who));
    }
    if (word == Word::kGone) {
      return absl::AbortedError(absl::StrCat(who, " has ended without an operation"));
    }
    if (word == Word::kGaveUp) {
      return absl::AbortedError(
          absl::StrCat(who, " has given up waiting for the first operation of some rank"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status rendezvous(int rank, int size) {
  tell_others(rank, size, Word::kHere);
  const absl::Status status = hear_others(rank, size, Word::kHere);
  // One rank may be late for some of the others only: none shall go on without those.
  tell_others(rank, size, status.ok() ? Word::kAllAreHere : Word::kGaveUp);
  return status.ok() ? hear_others(rank, size, Word::kAllAreHere) : status;
}

void decline_rendezvous(int rank, int size) { tell_others(rank, size, Word::kGone); }

}  // namespace ddl_tensorflow
