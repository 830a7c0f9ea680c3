// The members of a communicator as error messages name them, and the timeout that all waits share.
#pragma once

#include <atomic>
#include <string>

#include "error.h"

namespace ddl {

struct Peer {
  int world_rank;
  std::string host;

  std::string describe() const { return concat("rank ", world_rank, " (host ", host, ")"); }
};

// Seconds that one wait may last. Process-wide: ddl_set_timeout acts on waits from then on.
inline std::atomic<double> g_timeout_seconds{60.0};

}  // namespace ddl
