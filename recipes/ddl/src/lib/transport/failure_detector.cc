#include "transport/failure_detector.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>

#include "base/timeout.h"

namespace ddl {
namespace {

constexpr int kMaxAddresses = 16;
constexpr int kMaxRanks = 256;  // in an answer
// All ranks see a timeout for themselves, so in groups larger than this only those who have asked
// are told of one.
constexpr int kMaxTold = 1024;

// All detectors of this process, and the ranks of the job for which its threads wait. A rank that
// waits in one communicator answers in all. Looks are rare, so one lock is enough for everything
// here.
std::mutex g_mutex;
std::set<FailureDetector*> g_detectors;
struct Wait {
  Clock::time_point seen;
  std::vector<int> whom;
};
std::map<std::thread::id, Wait> g_waits;

// A wait that has not been seen for so long is over: it is seen every Flag::kSleep or so.
constexpr auto kOver = 4 * Flag::kSleep;

std::vector<in_addr> own_addresses() {
  std::vector<in_addr> found;
  std::vector<in_addr> loopback;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_UP) == 0) continue;
    const bool is_loopback = (one->ifa_flags & IFF_LOOPBACK) != 0;
    (is_loopback ? loopback : found)
        .push_back(reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr);
  }
  freeifaddrs(all);
  // Without a network, all "hosts" are this one.
  if (found.empty()) found = loopback;
  if (found.size() > kMaxAddresses) found.resize(kMaxAddresses);
  return found;
}

Clock::duration seconds(double n) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(n));
}

}  // namespace

// The ranks exchange their addresses in the beginning.
struct FailureDetector::Address {
  std::uint64_t nonce;  // rank 0's counts: strangers do not know it
  in_port_t port;       // 0: cannot be asked
  std::uint16_t num_addresses;
  in_addr addresses[kMaxAddresses];
};

struct FailureDetector::Datagram {
  enum Kind : std::int32_t { kAsks, kWaits, kGaveUp };
  std::uint64_t nonce;
  std::int32_t from;
  std::int32_t to;  // an address may be another host's, too (of a bridge that every host has)
  Kind kind;
  std::int32_t code;       // kGaveUp: a DDL_Result
  std::int32_t num_bytes;  // of what follows
  union {
    std::int32_t ranks[kMaxRanks];  // kWaits: for whom
    char text[kMaxErrorText];       // kGaveUp
  };
};

FailureDetector::FailureDetector(MpiTransport& transport, int rank)
    : peers_(transport.peers()), rank_(rank) {
  Address own = open_socket();
  const std::size_t size = transport.peers().size();
  std::vector<Address> all(size);
  Batch batch(transport);
  batch.all_gather(&own, sizeof(own), all.data());
  batch.wait();
  nonce_ = all[0].nonce;
  for (std::size_t i = 0; i < size; ++i) rank_of_[peers_[i].world_rank] = static_cast<int>(i);
  for (const Address& one : all) {
    std::vector<sockaddr_in>& addresses = addresses_.emplace_back();
    for (int i = 0; i < one.num_addresses; ++i) {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_port = one.port;
      address.sin_addr = one.addresses[i];
      addresses.push_back(address);
    }
  }
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_detectors.insert(this);
}

FailureDetector::~FailureDetector() {
  const std::lock_guard<std::mutex> lock(g_mutex);
  g_detectors.erase(this);
  if (socket_ >= 0) close(socket_);
}

// Without a socket, nobody can ask this rank, which is no error.
FailureDetector::Address FailureDetector::open_socket() {
  std::random_device random;
  Address own{};
  own.nonce = (std::uint64_t{random()} << 32) | random();
  socket_ = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket_ < 0) return own;
  sockaddr_in any{};
  any.sin_family = AF_INET;
  any.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t length = sizeof(any);
  auto* address = reinterpret_cast<sockaddr*>(&any);
  if (bind(socket_, address, length) != 0 || getsockname(socket_, address, &length) != 0) {
    close(socket_);
    socket_ = -1;
    return own;
  }
  own.port = any.sin_port;
  for (const in_addr& one : own_addresses()) own.addresses[own.num_addresses++] = one;
  return own;
}

std::vector<int> FailureDetector::look(const std::vector<int>& whom, double idle) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  const Clock::time_point now = Clock::now();
  for (auto one = g_waits.begin(); one != g_waits.end();) {
    one = now - one->second.seen > kOver ? g_waits.erase(one) : std::next(one);
  }
  Wait& wait = g_waits[std::this_thread::get_id()];
  wait.seen = now;
  wait.whom.clear();
  for (const int rank : whom) {
    if (rank >= 0) wait.whom.push_back(peers_[rank].world_rank);
  }
  for (FailureDetector* detector : g_detectors) detector->receive();
  if (told_) throw Relayed(*told_);
  // The second half of the timeout is for questions. A rank is silent after four without an
  // answer: in 3/16 of the timeout.
  if (socket_ < 0 || idle < wait_limit() / 2) return whom;
  std::vector<int> silent;
  // Ranks may wait for each other in a circle.
  std::set<int> seen{rank_};
  std::vector<int> chain = whom;
  while (!chain.empty()) {
    const int rank = chain.back();
    chain.pop_back();
    if (rank < 0 || addresses_[rank].empty() || !seen.insert(rank).second) continue;
    if (is_silent(rank)) {
      silent.push_back(rank);
    } else {
      const std::vector<int>& next = suspects_[rank].whom;
      chain.insert(chain.end(), next.begin(), next.end());
    }
  }
  std::sort(silent.begin(), silent.end());
  return silent.empty() ? whom : silent;
}

bool FailureDetector::is_silent(int rank) {
  const Clock::time_point now = Clock::now();
  Suspect& suspect = suspects_[rank];
  // More than the pause between two looks (Flag::kSleep), in which a waiting rank answers.
  if (now - suspect.asked >= seconds(std::max(wait_limit() / 16, 0.06))) {
    Datagram question{};
    question.kind = Datagram::kAsks;
    send(rank, question);
    suspect.asked = now;
    ++suspect.unanswered;
  }
  // Counted, not timed: it may be us who was away. The last one may still be answered.
  return suspect.unanswered > 3;
}

void FailureDetector::receive() {
  if (socket_ < 0) return;
  Datagram datagram;
  constexpr auto kHead = static_cast<ssize_t>(offsetof(Datagram, text));
  const int size = static_cast<int>(addresses_.size());
  while (true) {
    const ssize_t n = recv(socket_, &datagram, sizeof(datagram), 0);
    if (n < 0) return;
    // A stranger's, or meant for a communicator that had this port before.
    if (n < kHead || datagram.nonce != nonce_ || datagram.to != rank_ || datagram.from < 0 ||
        datagram.from >= size || datagram.num_bytes != n - kHead) {
      continue;
    }
    if (datagram.kind == Datagram::kAsks) {
      askers_.insert(datagram.from);
      answer(datagram.from);
    } else if (datagram.kind == Datagram::kWaits) {
      Suspect& suspect = suspects_[datagram.from];
      suspect.unanswered = 0;
      const int* end = datagram.ranks + datagram.num_bytes / sizeof(std::int32_t);
      suspect.whom.clear();
      std::copy_if(static_cast<const int*>(datagram.ranks), end, std::back_inserter(suspect.whom),
                   [size](int rank) { return rank >= 0 && rank < size; });
    } else if (datagram.kind == Datagram::kGaveUp && !told_) {
      // The first reason stays, as in shared memory.
      told_.emplace(static_cast<DDL_Result>(datagram.code),
                    std::string(datagram.text, datagram.num_bytes));
    }
  }
}

// Answers with the ranks for which threads of this process wait, as far as they are in this
// communicator.
void FailureDetector::answer(int rank) {
  Datagram datagram{};
  datagram.kind = Datagram::kWaits;
  int n = 0;
  for (const auto& [thread, wait] : g_waits) {
    if (Clock::now() - wait.seen > kOver) continue;
    for (const int of_job : wait.whom) {
      const auto found = rank_of_.find(of_job);
      if (found != rank_of_.end() && n < kMaxRanks) datagram.ranks[n++] = found->second;
    }
  }
  datagram.num_bytes = static_cast<std::int32_t>(n * sizeof(std::int32_t));
  send(rank, datagram);
}

void FailureDetector::tell(const Error& error, const char* text) {
  const std::lock_guard<std::mutex> lock(g_mutex);
  if (socket_ < 0) return;
  Datagram datagram{};
  datagram.kind = Datagram::kGaveUp;
  datagram.code = error.code();
  datagram.num_bytes = static_cast<std::int32_t>(std::min(std::strlen(text), kMaxErrorText));
  std::memcpy(datagram.text, text, datagram.num_bytes);
  const int size = static_cast<int>(addresses_.size());
  const bool is_news = dynamic_cast<const Relayed*>(&error) == nullptr &&
                       (error.code() != DDL_ERROR_TIMEOUT || size <= kMaxTold);
  for (int rank = 0; rank < size; ++rank) {
    if (rank != rank_ && (is_news || askers_.count(rank) != 0)) send(rank, datagram);
  }
}

// Lost datagrams are asked for again; one that finds no way is as good as lost.
void FailureDetector::send(int rank, Datagram& datagram) const {
  datagram.nonce = nonce_;
  datagram.from = rank_;
  datagram.to = rank;
  // To all of its addresses: nobody knows which one leads there. More than one copy does no harm.
  for (const sockaddr_in& address : addresses_[rank]) {
    sendto(socket_, &datagram, offsetof(Datagram, text) + datagram.num_bytes, MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
}

}  // namespace ddl
