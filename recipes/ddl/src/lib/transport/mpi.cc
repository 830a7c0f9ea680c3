#include "transport/mpi.h"

#include <algorithm>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

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
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    if (messages_[i].is_recv) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void Batch::send(const void* buffer, std::size_t nbytes, int peer, int tag, std::uint64_t id) {
  auto* bytes = static_cast<const std::byte*>(buffer);
  const auto turn = mpi_turn();
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    messages_.push_back({peer, piece, false, id});
    requests_.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(bytes, piece, MPI_BYTE, peer, tag, transport_.comm(), &requests_.back()),
              "MPI_Isend");
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

void Batch::recv(void* buffer, std::size_t nbytes, int peer, int tag, std::uint64_t id) {
  auto* bytes = static_cast<std::byte*>(buffer);
  const auto turn = mpi_turn();
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    messages_.push_back({peer, piece, true, id});
    requests_.push_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(bytes, piece, MPI_BYTE, peer, tag, transport_.comm(), &requests_.back()),
              "MPI_Irecv");
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

void Batch::all_min(long* values, int n) {
  const auto turn = mpi_turn();
  messages_.push_back({-1, 0, false, 0});
  requests_.push_back(MPI_REQUEST_NULL);
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_LONG, MPI_MIN, transport_.comm(),
                           &requests_.back()),
            "MPI_Iallreduce");
}

void Batch::check(const Message& message, const MPI_Status& status, int code) const {
  const auto who = [&] {
    return message.peer < 0 ? "all ranks" : transport_.peers()[message.peer].describe();
  };
  if (code != MPI_SUCCESS) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      fail(DDL_ERROR_MISMATCH, who(), " sent more than the ", message.nbytes, " bytes expected");
    }
    check_mpi(code, concat("a message with ", who()).c_str());
  }
  if (!message.is_recv) return;
  int received = 0;
  MPI_Get_count(&status, MPI_BYTE, &received);
  if (received != message.nbytes) {
    fail(DDL_ERROR_MISMATCH, who(), " sent ", received, " bytes, but ", message.nbytes,
         " were expected");
  }
}

bool Batch::poll(const std::function<void(std::uint64_t id)>& on_complete) {
  if (requests_.empty()) return false;
  completed_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int num_completed = 0;
  {
    const auto turn = mpi_turn();
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                                  &num_completed, completed_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) {
      // Only then are the statuses' error fields set.
      for (int i = 0; i < num_completed; ++i) statuses_[i].MPI_ERROR = code;
    }
  }
  if (num_completed == MPI_UNDEFINED || num_completed == 0) return false;
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < num_completed; ++i) {
    const Message& message = messages_[completed_[i]];
    check(message, statuses_[i], statuses_[i].MPI_ERROR);
    ids.push_back(message.id);
  }
  // From the back, so that what moves forward has been looked at.
  std::sort(completed_.begin(), completed_.begin() + num_completed, std::greater<int>());
  for (int i = 0; i < num_completed; ++i) {
    requests_[completed_[i]] = requests_.back();
    messages_[completed_[i]] = messages_.back();
    requests_.pop_back();
    messages_.pop_back();
  }
  for (const std::uint64_t id : ids) on_complete(id);
  return true;
}

std::string Batch::describe_peers() const {
  std::set<int> peers;
  for (const Message& message : messages_) peers.insert(message.peer);
  std::string text;
  for (const int peer : peers) {
    text += text.empty() ? "" : ", ";
    text += peer < 0 ? "some rank of the group" : transport_.peers()[peer].describe();
  }
  return text;
}

void Batch::wait() {
  Patience patience(transport_);
  while (!is_empty()) {
    if (poll([](std::uint64_t) {})) {
      patience.start_over();
    } else {
      patience.wait([this] { return describe_peers(); });
    }
  }
}

void Patience::start_over() { last_progress_ = Clock::now(); }

void Patience::wait(const std::function<std::string()>& who) {
  constexpr std::chrono::microseconds kYielding{100};
  constexpr Clock::duration kLongestSleep = std::chrono::milliseconds{1};
  const Clock::time_point now = Clock::now();
  if (now - last_progress_ < kYielding) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::min(kLongestSleep, (now - last_progress_) / 8));
  if (now - last_look_ < Flag::kSleep) return;
  last_look_ = now;
  transport_.on_wait();
  const std::chrono::duration<double> idle = now - last_progress_;
  if (idle.count() <= g_timeout_seconds) return;
  fail(DDL_ERROR_TIMEOUT, "no answer within ", g_timeout_seconds.load(), " s from ", who(),
       "; it is slow, stuck, dead or cut off (the limit is set by DDL_TIMEOUT or -timeout)");
}

}  // namespace ddl
