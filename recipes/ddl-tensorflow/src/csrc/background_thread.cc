#include "background_thread.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "rendezvous.h"
#include "status.h"

namespace ddl_tensorflow {
namespace {

constexpr std::size_t kSlots = 12;
constexpr double kShortest = 50e-6;  // seconds between two rounds that bring nothing new
constexpr double kLongest = 1e-3;

double now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

// FNV-1a; never 0.
std::uint64_t hash_of(const std::string& text, std::uint64_t hash = 14695981039346656037U) {
  for (const char character : text) {
    hash = (hash ^ static_cast<unsigned char>(character)) * 1099511628211U;
  }
  return hash | 1;
}

std::uint64_t hash_of(const std::vector<std::string>& lines) {
  std::uint64_t hash = hash_of(std::string());
  for (const std::string& line : lines) hash = hash_of(line, hash * 31);
  return hash;
}

// Separates a line's label from the text that must be the same, in the messages of
// explain_difference.
constexpr char kSeparator = '\t';

std::string text_of(const Operation& operation) {
  std::vector<std::string> labelled;
  for (std::size_t i = 0; i < operation.lines().size(); ++i) {
    labelled.push_back(
        absl::StrCat(operation.labels()[i], std::string(1, kSeparator), operation.lines()[i]));
  }
  return absl::StrJoin(labelled, "\n");
}

std::string without_label(const std::string& line) {
  return line.substr(line.rfind(kSeparator) + 1);
}

std::string with_label(const std::string& line) {
  const std::size_t end = line.rfind(kSeparator);
  if (end == std::string::npos || end == 0) return without_label(line);
  return absl::StrCat(line.substr(0, end), ": ", without_label(line));
}

std::string title_of(const Operation& operation) {
  return absl::StrCat(operation.lines()[0], " '", operation.name(), "'");
}

std::string ranks_text(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

}  // namespace

struct BackgroundThread::Message {
  std::uint64_t count = 0;
  std::uint64_t is_giving_up = 0;
  std::uint64_t is_shutting_down = 0;
  Announcement slots[kSlots] = {};
};

BackgroundThread& BackgroundThread::instance() {
  static auto* const only = new BackgroundThread;  // never destroyed: its thread has no end
  return *only;
}

void BackgroundThread::give(std::unique_ptr<Operation> operation) {
  const std::lock_guard<std::mutex> lock(mutex_);
  given_.push_back(std::move(operation));
  start();
}

void BackgroundThread::shut_down() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_shutting_down_ = true;
  start();
}

void BackgroundThread::wait_shut_down(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return is_shut_down_; });
}

void BackgroundThread::start() {
  if (!is_running_) {
    is_running_ = true;
    std::thread([this] { loop(); }).detach();
  }
  changed_.notify_all();
}

bool BackgroundThread::should_shut_down() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return is_shutting_down_ && !is_shut_down_;
}

void BackgroundThread::set_shut_down() {
  const std::lock_guard<std::mutex> lock(mutex_);
  is_shut_down_ = true;
  changed_.notify_all();
}

void BackgroundThread::loop() {
  pthread_setname_np(pthread_self(), "ddl-tensorflow");
  double pause = kShortest;
  while (true) {
    pause = is_progressing_ ? kShortest : std::min(2 * pause, kLongest);
    if (wait_for_work(pause)) pause = kShortest;
    absl::Status status = open();
    if (status.ok()) status = round();
    if (status.ok()) continue;
    fail_all(status);
    if (should_shut_down()) set_shut_down();  // they have heard it, or cannot
  }
}

// Waits until an operation is given, but no longer than `seconds` while other ranks are awaited.
// False when nothing new is there.
bool BackgroundThread::wait_for_work(double seconds) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto is_given = [this] { return !given_.empty() || (is_shutting_down_ && !is_shut_down_); };
  if (announced_.empty()) {
    changed_.wait(lock, is_given);
  } else if (!is_progressing_) {
    return changed_.wait_for(lock, std::chrono::duration<double>(seconds), is_given);
  }
  return true;
}

// A communicator of this thread's own, so that its calls and the program's do not meet.
absl::Status BackgroundThread::open() {
  if (ddl_initialized() == 0) {
    negotiation_.reset();
    return absl::FailedPreconditionError("ddl is not initialised; call ddl.init() first");
  }
  // Where others run MPI, ddl can end and begin again. It forgets the communicators of its former
  // life.
  if (negotiation_ && ddl_comm_rank(comm_, &rank_) == DDL_SUCCESS) return absl::OkStatus();
  negotiation_.reset();
  if (!closed_.ok()) return closed_;
  absl::Status status = to_status(ddl_size(&size_), "size");
  if (status.ok()) status = to_status(ddl_rank(&rank_), "rank");
  if (!status.ok()) return status;
  if (should_shut_down()) {
    decline_rendezvous(rank_, size_);
    return absl::AbortedError("this rank's program has ended");
  }
  closed_ = rendezvous(rank_, size_);
  if (!closed_.ok()) return closed_;
  std::vector<int> ranks(size_);
  std::iota(ranks.begin(), ranks.end(), 0);
  closed_ = to_status(ddl_comm_create(ranks.data(), size_, kTag, &comm_), "the first operation");
  if (closed_.ok()) negotiation_.emplace(size_);
  return closed_;
}

// Exchanges new operations with the other ranks, and carries out those that all have asked for.
absl::Status BackgroundThread::round() {
  Pendings fresh;
  const Message mine = next_message(fresh);
  for (Pending& pending : fresh) announced_[pending.name].push_back(std::move(pending));
  std::vector<Message> all(size_);
  const DDL_Result result = ddl_comm_allgather(comm_, &mine, all.data(), sizeof(Message));
  if (const absl::Status status = to_status(result, "waiting for the other ranks"); !status.ok()) {
    return status;
  }
  is_progressing_ = false;
  bool is_giving_up = false;
  std::vector<int> gone;
  for (int rank = 0; rank < size_; ++rank) {
    is_giving_up = is_giving_up || all[rank].is_giving_up != 0;
    is_progressing_ = is_progressing_ || all[rank].count > 0;
    if (all[rank].is_shutting_down != 0) gone.push_back(rank);
    for (std::size_t i = 0; i < all[rank].count; ++i) negotiation_->hear(rank, all[rank].slots[i]);
  }
  Pendings ready;
  for (const Agreement& agreement : negotiation_->take_agreements()) {
    Pending pending = take(agreement);
    if (agreement.is_same) {
      ready.push_back(std::move(pending));
    } else {
      pending.operation->finish(explain_difference(pending));
    }
  }
  carry_out(std::move(ready));
  if (is_giving_up) give_up();
  if (gone.empty()) return absl::OkStatus();
  negotiation_.reset();  // all ranks have heard it: there is no next round
  const char* verb = gone.size() == 1 ? " has ended its program" : " have ended their programs";
  closed_ = absl::AbortedError(absl::StrCat(ranks_text(gone), verb));
  return closed_;
}

BackgroundThread::Message BackgroundThread::next_message(Pendings& fresh) {
  Message message;
  message.is_giving_up = is_overdue() ? 1 : 0;
  const std::lock_guard<std::mutex> lock(mutex_);
  while (!given_.empty() && message.count < kSlots) {
    std::unique_ptr<Operation> operation = std::move(given_.front());
    given_.pop_front();
    const std::uint64_t name = hash_of(operation->name());
    message.slots[message.count++] = {name, hash_of(operation->lines()), operation->rows()};
    fresh.push_back({std::move(operation), name, now(), {}});
  }
  message.is_shutting_down = is_shutting_down_ && given_.empty() ? 1 : 0;
  return message;
}

BackgroundThread::Pending BackgroundThread::take(const Agreement& agreement) {
  const auto found = announced_.find(agreement.name);
  Pending pending = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) announced_.erase(found);
  pending.rows = agreement.rows;
  return pending;
}

// The allreduces of a round as one, then the others in the order agreed on.
void BackgroundThread::carry_out(Pendings ready) {
  std::vector<Reduction> reductions;
  for (const Pending& pending : ready) {
    for (const Reduction& one : pending.operation->reductions()) reductions.push_back(one);
  }
  const absl::Status reduced = packing_.reduce(comm_, reductions);
  for (const Pending& pending : ready) {
    Operation& operation = *pending.operation;
    absl::Status status = reduced;
    if (status.ok()) status = operation.run(comm_, pending.rows);
    if (!status.ok()) {
      status = absl::Status(status.code(),
                            absl::StrCat(title_of(operation), ": ", std::string(status.message())));
    }
    operation.finish(status);
  }
}

// All ranks know that they asked for different things under one name. Names the first difference.
absl::Status BackgroundThread::explain_difference(const Pending& pending) {
  const std::string text = text_of(*pending.operation);
  const std::uint64_t length = text.size();
  std::vector<std::uint64_t> lengths(size_);
  const std::string what = title_of(*pending.operation);
  absl::Status status =
      to_status(ddl_comm_allgather(comm_, &length, lengths.data(), sizeof length), what);
  if (!status.ok()) return status;
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  const std::string padded = text + std::string(longest - length, '\0');
  std::string all(longest * size_, '\0');
  status = to_status(ddl_comm_allgather(comm_, padded.data(), all.data(), longest), what);
  if (!status.ok()) return status;
  const auto lines_of = [&](int rank) {
    std::vector<std::string> lines =
        absl::StrSplit(all.substr(rank * longest, lengths[rank]), '\n');
    return lines;
  };
  const std::vector<std::string> first = lines_of(0);
  for (int rank = 1; rank < size_; ++rank) {
    const std::vector<std::string> other = lines_of(rank);
    for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::string one = i < first.size() ? first[i] : "no such tensor";
      const std::string two = i < other.size() ? other[i] : "no such tensor";
      if (without_label(one) == without_label(two)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("the ranks disagree on '", pending.operation->name(), "': ", with_label(one),
                       " on rank 0, ", with_label(two), " on rank ", rank));
    }
  }
  return absl::InternalError(absl::StrCat(what, ": hashes differ, texts do not"));
}

bool BackgroundThread::is_overdue() const {
  double timeout = 0;
  if (announced_.empty() || ddl_get_timeout(&timeout) != DDL_SUCCESS) return false;
  const double limit = now() - timeout;
  return std::any_of(announced_.begin(), announced_.end(),
                     [&](const auto& entry) { return entry.second.front().since < limit; });
}

// Every rank gives up in the same round, so operations without agreement fail everywhere.
void BackgroundThread::give_up() {
  auto failed = std::exchange(announced_, {});
  for (auto& [name, pendings] : failed) {
    const std::string who = ranks_text(negotiation_->missing(name));
    for (Pending& pending : pendings) {
      pending.operation->finish(absl::AbortedError(absl::StrCat(
          title_of(*pending.operation), " was not called on ", who, " within the timeout, while ",
          "the ranks waited for different operations; all ranks must run the same operations")));
    }
  }
  negotiation_->forget_all();
}

void BackgroundThread::fail_all(const absl::Status& status) {
  auto failed = std::exchange(announced_, {});
  std::deque<std::unique_ptr<Operation>> given;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    given.swap(given_);
  }
  const auto finish = [&](Operation& operation) {
    operation.finish(absl::Status(
        status.code(), absl::StrCat(title_of(operation), ": ", std::string(status.message()))));
  };
  for (auto& [name, pendings] : failed) {
    for (Pending& pending : pendings) finish(*pending.operation);
  }
  for (const auto& operation : given) finish(*operation);
  if (negotiation_) negotiation_->forget_all();
}

}  // namespace ddl_tensorflow
