#include "transport/mpi.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>

#include "wait.h"

namespace ddl {
namespace {

// MPI counts are ints; longer messages go in pieces.
constexpr std::size_t kMaxPiece = std::size_t{1} << 30;

// Below MPI_THREAD_MULTIPLE only one thread may be inside MPI at a time.
std::unique_lock<std::mutex> mpi_turn() {
  static std::mutex mutex;
  static const bool is_needed = [] {
    int provided = MPI_THREAD_SINGLE;
    MPI_Query_thread(&provided);
    return provided < MPI_THREAD_MULTIPLE;
  }();
  return is_needed ? std::unique_lock(mutex) : std::unique_lock<std::mutex>();
}

}  // namespace

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(DDL_ERROR_MPI, what, " failed: ", text);
}

MpiTransport::MpiTransport(MPI_Comm comm, std::vector<Peer> peers)
    : comm_(comm), peers_(std::move(peers)) {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
}

MpiTransport::~MpiTransport() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) return;
  const auto turn = mpi_turn();
  MPI_Comm_free(&comm_);
}

Batch::~Batch() {
  const auto turn = mpi_turn();
  for (Message& message : pending_) {
    if (message.request == MPI_REQUEST_NULL) continue;
    if (message.is_recv) MPI_Cancel(&message.request);
    MPI_Request_free(&message.request);
  }
}

void Batch::send(const void* buffer, std::size_t nbytes, int peer, int tag) {
  auto* bytes = static_cast<const std::byte*>(buffer);
  const auto turn = mpi_turn();
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    pending_.push_back({MPI_REQUEST_NULL, peer, piece, false});
    check_mpi(
        MPI_Isend(bytes, piece, MPI_BYTE, peer, tag, transport_.comm(), &pending_.back().request),
        "MPI_Isend");
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

void Batch::recv(void* buffer, std::size_t nbytes, int peer, int tag) {
  auto* bytes = static_cast<std::byte*>(buffer);
  const auto turn = mpi_turn();
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    pending_.push_back({MPI_REQUEST_NULL, peer, piece, true});
    check_mpi(
        MPI_Irecv(bytes, piece, MPI_BYTE, peer, tag, transport_.comm(), &pending_.back().request),
        "MPI_Irecv");
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

void Batch::all_min(long* values, int n) {
  const auto turn = mpi_turn();
  pending_.push_back({MPI_REQUEST_NULL, -1, 0, false});
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_LONG, MPI_MIN, transport_.comm(),
                           &pending_.back().request),
            "MPI_Iallreduce");
}

bool Batch::test(Message& message) {
  int is_complete = 0;
  MPI_Status status;
  const auto turn = mpi_turn();
  const int code = MPI_Test(&message.request, &is_complete, &status);
  const std::string who = message.peer < 0 ? "" : transport_.peers()[message.peer].describe();
  if (code != MPI_SUCCESS) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      fail(DDL_ERROR_MISMATCH, who, " sent more than the ", message.nbytes, " bytes expected");
    }
    check_mpi(code, concat("a message with ", who).c_str());
  }
  if (is_complete && message.is_recv) {
    int received = 0;
    MPI_Get_count(&status, MPI_BYTE, &received);
    if (received != message.nbytes) {
      fail(DDL_ERROR_MISMATCH, who, " sent ", received, " bytes, but ", message.nbytes,
           " were expected");
    }
  }
  return is_complete != 0;
}

void Batch::time_out() const {
  std::set<int> missing;
  for (const Message& message : pending_) missing.insert(message.peer);
  std::string who;
  for (const int peer : missing) {
    who += who.empty() ? "" : ", ";
    who += peer < 0 ? "some rank of the group" : transport_.peers()[peer].describe();
  }
  fail(DDL_ERROR_TIMEOUT, "no answer within ", g_timeout_seconds.load(), " s from ", who,
       "; it is slow, stuck, dead or cut off (the limit is set by DDL_TIMEOUT or -timeout)");
}

void Batch::wait() {
  // Networks answer within a millisecond, or not soon.
  constexpr std::chrono::milliseconds kYielding{1};
  constexpr std::chrono::microseconds kSleep{50};
  Clock::time_point last_progress = Clock::now();
  Clock::time_point last_check = last_progress;
  while (!pending_.empty()) {
    const std::size_t before = pending_.size();
    for (std::size_t i = 0; i < pending_.size();) {
      if (test(pending_[i])) {
        pending_[i] = pending_.back();
        pending_.pop_back();
      } else {
        ++i;
      }
    }
    const Clock::time_point now = Clock::now();
    if (pending_.size() < before) {
      last_progress = now;
      continue;
    }
    if (now - last_progress < kYielding) {
      std::this_thread::yield();
      continue;
    }
    std::this_thread::sleep_for(kSleep);
    if (now - last_check < Flag::kSleep) continue;
    last_check = now;
    transport_.on_wait();
    const std::chrono::duration<double> idle = now - last_progress;
    if (idle.count() > g_timeout_seconds) time_out();
  }
}

}  // namespace ddl
