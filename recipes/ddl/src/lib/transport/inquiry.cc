#include "transport/inquiry.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <random>

namespace ddl {
namespace {

constexpr int kMaxAddresses = 4;
constexpr int kMaxRanks = 64;  // in an answer
constexpr std::size_t kMaxText = 1024;

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

// What ranks tell each other in the beginning.
struct Inquiry::Address {
  std::uint64_t nonce;  // rank 0's counts: strangers do not know it
  in_port_t port;       // 0: cannot be asked
  std::uint16_t num_addresses;
  in_addr addresses[kMaxAddresses];
};

struct Inquiry::Datagram {
  enum Kind : std::int32_t { kAsks, kWaits, kGaveUp };
  std::uint64_t nonce;
  std::int32_t from;
  std::int32_t to;  // an address may be another host's, too (of a bridge that every host has)
  Kind kind;
  std::int32_t code;       // kGaveUp: a DDL_Result
  std::int32_t num_bytes;  // of what follows
  union {
    std::int32_t ranks[kMaxRanks];  // kWaits: for whom
    char text[kMaxText];            // kGaveUp
  };
};

Inquiry::Inquiry(MpiTransport& transport, int rank) : rank_(rank) {
  Address own = open_socket();
  const std::size_t size = transport.peers().size();
  std::vector<Address> all(size);
  Batch batch(transport);
  batch.all_gather(&own, sizeof(own), all.data());
  batch.wait();
  nonce_ = all[0].nonce;
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
}

Inquiry::~Inquiry() {
  if (socket_ >= 0) close(socket_);
}

// Not having one is no error: nobody can ask us then.
Inquiry::Address Inquiry::open_socket() {
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

std::vector<int> Inquiry::look(const std::vector<int>& whom, double idle) {
  if (socket_ < 0) return whom;
  if (idle < last_idle_) {  // something has come since
    suspects_.clear();
    askers_.clear();
  }
  last_idle_ = idle;
  receive(whom);
  if (idle < g_timeout_seconds / 2) return whom;
  std::vector<int> silent;
  std::set<int> seen{rank_};
  std::vector<int> chain = whom;
  while (!chain.empty()) {
    const int rank = chain.back();
    chain.pop_back();
    if (rank < 0 || !seen.insert(rank).second) continue;
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

bool Inquiry::is_silent(int rank) {
  const double timeout = g_timeout_seconds;
  const Clock::time_point now = Clock::now();
  const auto [entry, is_new] = suspects_.try_emplace(rank, Suspect{now, {}, {}});
  Suspect& suspect = entry->second;
  if (is_new || now - suspect.asked >= seconds(std::max(timeout / 16, 0.05))) {
    Datagram question{};
    question.kind = Datagram::kAsks;
    send(rank, question);
    suspect.asked = now;
  }
  // Two questions at least have then got no answer.
  return now - suspect.heard >= seconds(std::max(timeout / 8, 0.2));
}

void Inquiry::receive(const std::vector<int>& whom) {
  Datagram datagram;
  constexpr auto kHead = static_cast<ssize_t>(offsetof(Datagram, text));
  while (true) {
    const ssize_t n = recv(socket_, &datagram, sizeof(datagram), 0);
    if (n < 0) return;
    if (n < kHead || datagram.nonce != nonce_ || datagram.to != rank_ || datagram.from < 0 ||
        datagram.from >= static_cast<int>(addresses_.size()) || datagram.num_bytes != n - kHead) {
      continue;
    }
    if (datagram.kind == Datagram::kAsks) {
      askers_.insert(datagram.from);
      answer(datagram.from, whom);
    } else if (datagram.kind == Datagram::kWaits) {
      const auto suspect = suspects_.find(datagram.from);
      if (suspect == suspects_.end()) continue;
      suspect->second.heard = Clock::now();
      suspect->second.whom.assign(datagram.ranks,
                                  datagram.ranks + datagram.num_bytes / sizeof(std::int32_t));
    } else if (datagram.kind == Datagram::kGaveUp) {
      throw Relayed(static_cast<DDL_Result>(datagram.code),
                    std::string(datagram.text, datagram.num_bytes));
    }
  }
}

void Inquiry::answer(int rank, const std::vector<int>& whom) {
  Datagram datagram{};
  datagram.kind = Datagram::kWaits;
  const std::size_t n = std::min<std::size_t>(whom.size(), kMaxRanks);
  std::copy_n(whom.begin(), n, datagram.ranks);
  datagram.num_bytes = static_cast<std::int32_t>(n * sizeof(std::int32_t));
  send(rank, datagram);
}

void Inquiry::tell(const Error& error, const std::string& text) {
  if (socket_ < 0) return;
  Datagram datagram{};
  datagram.kind = Datagram::kGaveUp;
  datagram.code = error.code();
  datagram.num_bytes = static_cast<std::int32_t>(std::min(text.size(), kMaxText));
  std::memcpy(datagram.text, text.data(), datagram.num_bytes);
  if (error.code() == DDL_ERROR_TIMEOUT) {
    for (const int rank : askers_) send(rank, datagram);
    return;
  }
  for (int rank = 0; rank < static_cast<int>(addresses_.size()); ++rank) {
    if (rank != rank_) send(rank, datagram);
  }
}

// Lost datagrams are asked for again; one that finds no way is as good as lost.
void Inquiry::send(int rank, Datagram& datagram) const {
  datagram.nonce = nonce_;
  datagram.from = rank_;
  datagram.to = rank;
  for (const sockaddr_in& address : addresses_[rank]) {
    sendto(socket_, &datagram, offsetof(Datagram, text) + datagram.num_bytes, MSG_NOSIGNAL,
           reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  }
}

}  // namespace ddl
