#include "transport/inquiry.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iterator>
#include <thread>

#include "transport/mpi.h"

namespace ddl {
namespace {

constexpr int kTag = 32770;
// A rank that waits looks around every Flag::kSleep; more, for machines with other things to do.
constexpr std::chrono::milliseconds kGrace{800};

}  // namespace

Inquiry::~Inquiry() {
  int is_finalized = 0;
  MPI_Finalized(&is_finalized);
  if (is_finalized) return;
  const auto turn = mpi_turn();
  for (Sent& sent : sent_) {
    if (sent.request != MPI_REQUEST_NULL) MPI_Request_free(&sent.request);
  }
}

Inquiry::Notice Inquiry::make(Kind kind, const std::vector<int>& ranks) {
  Notice notice{};
  notice.kind = kind;
  notice.num_ranks = static_cast<std::int32_t>(std::min(ranks.size(), std::size(notice.ranks)));
  std::copy_n(ranks.begin(), notice.num_ranks, notice.ranks);
  return notice;
}

void Inquiry::send(int to, const Notice& notice) {
  Sent& sent = sent_.emplace_back(Sent{notice, MPI_REQUEST_NULL});
  const auto turn = mpi_turn();
  MPI_Isend(&sent.notice, sizeof(Notice), MPI_BYTE, to, kTag, transport_.comm(), &sent.request);
}

std::vector<Inquiry::Received> Inquiry::receive() {
  std::vector<Received> found;
  const auto turn = mpi_turn();
  int has_come = 0;
  MPI_Status status;
  while (MPI_Iprobe(MPI_ANY_SOURCE, kTag, transport_.comm(), &has_come, &status) == MPI_SUCCESS &&
         has_come) {
    Received received{status.MPI_SOURCE, {}};
    if (MPI_Recv(&received.notice, sizeof(Notice), MPI_BYTE, received.from, kTag, transport_.comm(),
                 MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      break;
    }
    found.push_back(received);
  }
  for (const Received& received : found) {
    if (received.notice.kind != kGiveUp) continue;
    throw Relayed(static_cast<DDL_Result>(received.notice.code), received.notice.text);
  }
  return found;
}

void Inquiry::answer(const std::vector<int>& ranks) {
  for (const Received& received : receive()) {
    if (received.notice.kind == kAsk) send(received.from, make(kAnswer, ranks));
  }
}

std::vector<int> Inquiry::find_lost(const std::vector<int>& ranks) {
  const int me = transport_.rank();
  std::set<int> asked{me};
  std::set<int> silent;
  const auto ask = [&](int rank) {
    if (!asked.insert(rank).second) return;
    silent.insert(rank);
    send(rank, make(kAsk, ranks));
  };
  for (const int rank : ranks) ask(rank);
  const Clock::time_point start = Clock::now();
  while (!silent.empty() && Clock::now() - start < kGrace) {
    for (const auto& [from, notice] : receive()) {
      if (notice.kind == kAsk) send(from, make(kAnswer, ranks));
      silent.erase(from);
      asked.insert(from);
      for (int i = 0; i < notice.num_ranks; ++i) ask(notice.ranks[i]);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return silent.empty() ? ranks : std::vector<int>(silent.begin(), silent.end());
}

void Inquiry::give_up(const Error& error) {
  const int size = static_cast<int>(transport_.peers().size());
  const int me = transport_.rank();
  Notice notice = make(kGiveUp, {});
  notice.code = error.code();
  const bool is_relayed = dynamic_cast<const Relayed*>(&error) != nullptr;
  const std::string text =
      is_relayed ? error.what() : transport_.peers()[me].describe() + " gave up: " + error.what();
  std::strncpy(notice.text, text.c_str(), sizeof(notice.text) - 1);
  for (int distance = 1; distance < size; distance *= 2) {
    send((me + distance) % size, notice);
    if (2 * distance != size) send((me - distance + size) % size, notice);
  }
}

}  // namespace ddl
