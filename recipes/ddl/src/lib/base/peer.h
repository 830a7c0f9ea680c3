// The members of a communicator as error messages name them, and what watches waits for them.
#pragma once

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
  constexpr std::size_t kMostNamed = 16;  // of a large job, not more than one can read
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMostNamed)
      return text + " and " + std::to_string(ranks.size() - kMostNamed) + " more";
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

}  // namespace ddl
