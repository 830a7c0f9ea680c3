// The user's settings: DDL_OPTIONS (the library's documented option string) and DDL_* variables.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/timeout.h"

namespace ddl {

struct Settings {
  // -mode X:AxBxC. `mode` is 0 when it was not given. The product of `dimensions` must be the
  // number of ranks. Sizes say how hosts are grouped (see Topology); the letter is a preference
  // only.
  char mode = 0;
  std::vector<int> dimensions;

  std::string topology_file;  // -topology FILE (YAML, see topology/file.h); "" = none

  int schedule = 0;  // -schedule: see schedule_kinds.h; 0 = choose by size

  double timeout = kDefaultTimeout;  // -timeout S, else DDL_TIMEOUT; seconds, > 0

  // Consecutive asynchronous allreduces travel as one message of at most `fusion_bytes`; the first
  // of them waits at most `fusion_wait_ms` for the others.
  std::size_t fusion_bytes = std::size_t{1}
                             << 20;  // -fusion_bytes N, else DDL_FUSION_BYTES; 0 = off
  double fusion_wait_ms = 1.0;       // -fusion_wait MS, else DDL_FUSION_WAIT

  int debug_level = 0;  // -dbg_level: 1 prints the topology at start, 2 every collective
  int dump_every = 0;   // -dump_iter N: prints every N-th collective; 0 = never
  int device_sync =
      0;  // -dev_sync 0|1|2: 0 = collectives on a GPU wait for one stream, else for all
  int rebind_every =
      0;  // -rebind_iter N: how often to choose schedules anew; the choice depends on size only

  std::string timeline_file;  // -timeline FILE, else DDL_TIMELINE; "" = none

  // -deterministic 1: sums of several hosts are those of one host, bit by bit; all ranks alike.
  bool is_deterministic = false;

  // Knobs for tests.
  std::size_t chunk_bytes = 0;  // DDL_SHM_CHUNK: bytes per rank and chunk; 0 = choose
  int fake_hosts = 0;           // DDL_FAKE_HOSTS: rank r counts as on host r % K; 0 = real hosts
  int fake_sockets = 0;  // DDL_FAKE_SOCKETS: a host's i-th rank counts as on socket i % K, and
                         // sums by socket whether that pays or not; 0 = real ones
  std::optional<bool> fake_far;  // DDL_FAKE_FAR: a host's ranks count as far from each other (1) or
                                 // not (0), whatever is measured
};

// Reads `options` and the environment. Throws DDL_ERROR_ARGUMENT with the list of valid options.
Settings parse_settings(const std::string& options);

// The timeout of a rank with these DDL_OPTIONS and, if it has one, this DDL_TIMEOUT. It is the
// default where they are wrong, as the rank itself will say. `peer_timeout` of launch/run.py reads
// the same words for ddlrun: what is taken here is taken there, and tests/ranks/test_launchers.py
// has it.
double timeout_of(const std::string& options, const std::optional<std::string>& variable);

// The schedule that a word for -schedule means. Throws DDL_ERROR_ARGUMENT on others.
int parse_schedule(const std::string& text);

// The word for -schedule: "direct", "halving", "radix:R", "ring" or "tree".
std::string name_of_schedule(int schedule);

// Throws DDL_ERROR_ARGUMENT when -mode does not describe `size` ranks.
void check_mode(const Settings& settings, int size);

}  // namespace ddl
