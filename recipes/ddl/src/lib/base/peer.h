// The members of a communicator as error messages name them, and the timeout that all waits share.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"

namespace ddl {

struct Peer {
  int world_rank;
  std::string host;  // "" while it is not known

  std::string describe() const {
    return host.empty() ? concat("rank ", world_rank)
                        : concat("rank ", world_rank, " (host ", host, ")");
  }
};

// "rank 3 (host h1), rank 4 (host h2)"; -1 stands for one that nobody knows.
inline std::string describe(const std::vector<Peer>& peers, const std::vector<int>& ranks) {
  constexpr std::size_t kMost = 16;  // of a large job, not more than one can read
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMost) return text + " and " + std::to_string(ranks.size() - kMost) + " more";
    const int rank = ranks[i];
    text += text.empty() ? "" : ", ";
    text += rank < 0 ? "some rank of the group" : peers[rank].describe();
  }
  return text;
}

// Called now and then by a rank that has been waiting for the ranks `whom` for `idle` seconds, with
// nothing coming meanwhile. Returns whom to name if it gives up now; throws when waiting has become
// pointless.
using WaitWatcher = std::function<std::vector<int>(const std::vector<int>& whom, double idle)>;

// Seconds that one wait may last. Process-wide: ddl_set_timeout acts on waits from then on.
inline std::atomic<double> g_timeout_seconds{60.0};
// The same for the waits of one thread instead, if not null: ddl_use_timeout's. Others may write
// it.
inline thread_local const double* t_timeout_seconds = nullptr;

// Seconds that a wait of this thread may last. Throws when whoever gave this thread its timeout
// wants it to wait no more.
inline double wait_limit() {
  if (t_timeout_seconds == nullptr) return g_timeout_seconds;
  double seconds = 0;
  __atomic_load(t_timeout_seconds, &seconds, __ATOMIC_RELAXED);
  if (seconds < 0) fail(DDL_ERROR_TIMEOUT, "this rank has given up the call");
  return seconds;
}

}  // namespace ddl
