#include "transport/mpi.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <thread>

#include "base/timeout.h"
#include "transport/isend.h"

namespace ddl {
namespace {

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

// The batch for which this thread is inside MPI.
thread_local const Batch* t_batch = nullptr;

class InsideMpi {
 public:
  explicit InsideMpi(const Batch* batch) { t_batch = batch; }
  ~InsideMpi() { t_batch = nullptr; }
  InsideMpi(const InsideMpi&) = delete;
  InsideMpi& operator=(const InsideMpi&) = delete;

 private:
  std::unique_lock<std::mutex> turn_ = mpi_turn();
};

// MPICH ends the process by exit() when libfabric reports a connection that was reset, whatever the
// error handler says (MPIDI_OFI_handle_cq_error).
void explain_end() {
  // An ordinary end: this thread is in no call of MPI.
  if (t_batch == nullptr) return;
  t_batch->explain_end();
  // The other exit handlers would wait for threads that wait for MPI.
  std::fflush(nullptr);
  std::_Exit(EXIT_FAILURE);
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm, std::vector<Peer> peers, Use use)
    : comm_(comm), peers_(std::move(peers)), use_(use) {
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  if (use_ == Use::kBorrowed) MPI_Comm_get_errhandler(comm_, &before_);
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  if (use_ == Use::kPrivate) prepare_isend(comm_);
  static const int registered = std::atexit(explain_end);
  static_cast<void>(registered);
}

MpiTransport::~MpiTransport() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  // MPI has freed everything, and may not be called any more.
  if (is_finalized) return;
  const auto turn = mpi_turn();
  if (use_ == Use::kBorrowed) {
    MPI_Comm_set_errhandler(comm_, before_);
    // MPI_Comm_get_errhandler has made a reference to it.
    MPI_Errhandler_free(&before_);
  } else if (use_ == Use::kPrivate) {
    MPI_Comm_free(&comm_);
  }
}

Batch::~Batch() {
  const InsideMpi inside(this);
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    // Not waited for: a peer that is gone never lets it complete.
    if (messages_[i].is_recv) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
  }
}

void Batch::send(const void* buffer, std::size_t nbytes, int peer, int tag, std::uint64_t id) {
  auto* bytes = static_cast<const std::byte*>(buffer);
  const InsideMpi inside(this);
  // MPI keeps the order of messages to a rank, and so must those that wait.
  bool must_wait = std::any_of(waiting_.begin(), waiting_.end(),
                               [peer](const Waiting& other) { return other.message.peer == peer; });
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    const Waiting send{bytes, tag, {peer, piece, false, id, begin_of(piece)}};
    // Once one piece waits, the next ones are not tried: MPI would let them pass it.
    must_wait = must_wait || !post(send);
    if (must_wait) waiting_.push_back(send);
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

MPI_Request* Batch::add(const Message& message) {
  requests_.push_back(MPI_REQUEST_NULL);
  try {
    messages_.push_back(message);
  } catch (...) {
    requests_.pop_back();
    throw;
  }
  return &requests_.back();
}

bool Batch::post(const Waiting& send) {
  const Message& message = send.message;
  MPI_Request* request = add(message);
  if (try_isend(send.buffer, message.nbytes, message.peer, send.tag, transport_.comm(), request)) {
    return true;
  }
  messages_.pop_back();
  requests_.pop_back();
  return false;
}

// Says whether MPI has taken any.
bool Batch::post_waiting() {
  // A try can take a while, and MPICH does not give back all that it took for it.
  constexpr std::chrono::milliseconds kPause{1};
  if (waiting_.empty() || Clock::now() - last_try_ < kPause) return false;
  const InsideMpi inside(this);
  std::set<int> stuck;
  std::deque<Waiting> still;
  for (const Waiting& send : waiting_) {
    // A rank whose message was refused is not tried again in this round: its next must not pass.
    if (stuck.count(send.message.peer) == 0 && post(send)) continue;
    stuck.insert(send.message.peer);
    still.push_back(send);
  }
  const bool has_posted = still.size() < waiting_.size();
  waiting_ = std::move(still);
  last_try_ = Clock::now();
  return has_posted;
}

void Batch::recv(void* buffer, std::size_t nbytes, int peer, int tag, std::uint64_t id) {
  auto* bytes = static_cast<std::byte*>(buffer);
  const InsideMpi inside(this);
  do {
    const int piece = static_cast<int>(std::min(nbytes, kMaxPiece));
    MPI_Request* request = add({peer, piece, true, id, begin_of(piece)});
    // All pieces have one tag: MPI matches them in the order in which they are posted here.
    const int source = peer == kAnyRank ? MPI_ANY_SOURCE : peer;
    check_mpi(MPI_Irecv(bytes, piece, MPI_BYTE, source, tag, transport_.comm(), request),
              "MPI_Irecv");
    bytes += piece;
    nbytes -= piece;
  } while (nbytes > 0);
}

void Batch::recv_at_most(void* buffer, std::size_t nbytes, int peer, std::size_t* received,
                         int tag) {
  const InsideMpi inside(this);
  const int most = static_cast<int>(nbytes);
  MPI_Request* request = add({peer, most, true, 0, begin_of(nbytes), received});
  check_mpi(MPI_Irecv(buffer, most, MPI_BYTE, peer, tag, transport_.comm(), request), "MPI_Irecv");
}

std::optional<int> Batch::try_recv(int peer, int tag, std::vector<std::byte>* bytes) {
  const int source = peer == kAnyRank ? MPI_ANY_SOURCE : peer;
  int is_there = 0;
  int nbytes = 0;
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status{};
  {
    const InsideMpi inside(this);
    // A matched probe: no other thread can take the message before its receive.
    check_mpi(MPI_Improbe(source, tag, transport_.comm(), &is_there, &message, &status),
              "MPI_Improbe");
    if (is_there == 0) return std::nullopt;
    MPI_Get_count(&status, MPI_BYTE, &nbytes);
    bytes->resize(nbytes);
    MPI_Request* request = add({status.MPI_SOURCE, nbytes, true, 0, begin_of(nbytes)});
    check_mpi(MPI_Imrecv(bytes->data(), nbytes, MPI_BYTE, &message, request), "MPI_Imrecv");
  }
  // The turn is over by now: wait() takes it for each look, and its mutex is not recursive.
  wait();
  return status.MPI_SOURCE;
}

void Batch::all_min(long* values, int n) {
  const InsideMpi inside(this);
  MPI_Request* request = add({-1, 0, false, 0, {}});
  check_mpi(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_LONG, MPI_MIN, transport_.comm(), request),
            "MPI_Iallreduce");
}

void Batch::all_gather(const void* own, std::size_t nbytes, void* all) {
  const InsideMpi inside(this);
  MPI_Request* request = add({-1, 0, false, 0, {}});
  const int count = static_cast<int>(nbytes);
  check_mpi(MPI_Iallgather(own, count, MPI_BYTE, all, count, MPI_BYTE, transport_.comm(), request),
            "MPI_Iallgather");
}

void Batch::check(const Message& message, const MPI_Status& status, int code) const {
  const auto who = [&] {
    return message.peer < 0 ? "all ranks" : transport_.peers()[message.peer].describe();
  };
  int is_cancelled = 0;
  if (code == MPI_SUCCESS && message.is_recv) MPI_Test_cancelled(&status, &is_cancelled);
  // A rank that gives up tells why, and ends. The end of its connection may be seen before its
  // words.
  if (code != MPI_SUCCESS || is_cancelled != 0) transport_.on_wait({message.peer}, 0);
  if (is_cancelled != 0) fail(DDL_ERROR_PEER_LOST, "the connection to ", who(), " has ended");
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
  if (message.received != nullptr) {
    *message.received = static_cast<std::size_t>(received);
  } else if (received != message.nbytes) {
    fail(DDL_ERROR_MISMATCH, who(), " sent ", received, " bytes, but ", message.nbytes,
         " were expected");
  }
}

void Batch::record(const Message& message, Clock::time_point end) const {
  const int peer = transport_.peers()[message.peer].world_rank;
  transport_.timeline->add(MessageEvent{nanoseconds(message.begin), nanoseconds(end),
                                        static_cast<std::uint64_t>(message.nbytes), peer,
                                        message.is_recv});
}

bool Batch::poll(const std::function<void(std::uint64_t id)>& on_complete) {
  // A message that MPI has taken is progress, too: the timeout begins again.
  const bool has_posted = post_waiting();
  if (requests_.empty()) {
    if (waiting_.empty()) return has_posted;
    // Without requests to test, MPI still has to get on with its own work.
    const InsideMpi inside(this);
    int flag = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, tags::kSetup.first, transport_.comm(), &flag, MPI_STATUS_IGNORE);
    return has_posted;
  }
  completed_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int num_completed = 0;
  {
    const InsideMpi inside(this);
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(),
                                  &num_completed, completed_.data(), statuses_.data());
    if (code != MPI_ERR_IN_STATUS) {
      // MPI sets the statuses' error fields only with MPI_ERR_IN_STATUS.
      for (int i = 0; i < num_completed; ++i) statuses_[i].MPI_ERROR = code;
    }
  }
  if (num_completed == MPI_UNDEFINED || num_completed == 0) return has_posted;
  // Once for all of them: a look at the clock costs as much as the rest of a record, twice over.
  const Clock::time_point now = transport_.timeline ? Clock::now() : Clock::time_point();
  std::vector<std::uint64_t> ids;
  for (int i = 0; i < num_completed; ++i) {
    Message& message = messages_[completed_[i]];
    // The status of a message that failed may name no rank.
    if (message.is_recv && message.peer == kAnyRank && statuses_[i].MPI_SOURCE >= 0) {
      message.peer = sender_ = statuses_[i].MPI_SOURCE;
    }
    check(message, statuses_[i], statuses_[i].MPI_ERROR);
    if (message.received != nullptr) message.nbytes = static_cast<int>(*message.received);
    if (is_recorded(message.nbytes)) record(message, now);
    ids.push_back(message.id);
  }
  // Removes from the back, so that messages which move forward have been looked at.
  std::sort(completed_.begin(), completed_.begin() + num_completed, std::greater<int>());
  for (int i = 0; i < num_completed; ++i) {
    requests_[completed_[i]] = requests_.back();
    messages_[completed_[i]] = messages_.back();
    requests_.pop_back();
    messages_.pop_back();
  }
  // At last: on_complete may add messages.
  for (const std::uint64_t id : ids) on_complete(id);
  return true;
}

std::vector<int> Batch::awaited() const {
  std::set<int> peers;
  for (const Message& message : messages_) peers.insert(message.peer);
  for (const Waiting& send : waiting_) peers.insert(send.message.peer);
  return {peers.begin(), peers.end()};
}

void Batch::explain_end() const {
  // Half of the timeout counts as over, so that the others are asked at once which rank is lost.
  const double half = g_timeout_seconds / 2;
  Waited waited;
  // From here on, only shared memory and datagrams: MPI is ending the process.
  const std::vector<int> silent = awaited();
  std::vector<int> lost = silent;
  try {
    for (double idle = 0; idle < half; idle = waited.seconds()) {
      lost = transport_.on_wait(silent, half + idle);
      std::this_thread::sleep_for(Flag::kSleep);
    }
    fail(DDL_ERROR_PEER_LOST, "the connection to ", describe(transport_.peers(), lost),
         " has ended");
  } catch (const Error& error) {
    transport_.on_end(error);
  }
}

void Batch::wait(double more) {
  PollBackoff backoff(transport_, "", more);
  while (!is_empty()) {
    if (poll([](std::uint64_t) {})) {
      backoff.start_over();
    } else {
      backoff.wait([this] { return awaited(); });
    }
  }
}

void PollBackoff::start_over() {
  // last_look_ stays as it is: looks are apart in time, whether messages come or not.
  last_progress_ = Clock::now();
  waited_ = Waited(last_progress_);
}

void PollBackoff::wait(const std::function<std::vector<int>()>& whom) {
  constexpr Clock::duration kLongestSleep = std::chrono::milliseconds{1};
  const Clock::time_point now = Clock::now();
  if (now - last_progress_ < kYielding) {
    std::this_thread::yield();
    return;
  }
  std::this_thread::sleep_for(std::min(kLongestSleep, (now - last_progress_) / 8));
  // A look takes a lock and system calls: no more often than in a wait for shared memory.
  if (now - last_look_ < Flag::kSleep) return;
  last_look_ = now;
  const double idle = waited_.seconds();
  const std::vector<int> lost = transport_.on_wait(whom(), idle);
  const double limit = wait_limit();
  if (idle <= limit + more_) return;
  fail(DDL_ERROR_TIMEOUT, "no answer within ", limit, " s from ", what_,
       describe(transport_.peers(), lost),
       "; it is slow, stuck, dead or cut off (the limit is set by DDL_TIMEOUT or -timeout)");
}

}  // namespace ddl
