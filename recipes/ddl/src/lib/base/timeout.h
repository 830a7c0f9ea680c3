// The timeout that all waits share.
#pragma once

#include <atomic>

#include "base/error.h"

namespace ddl {

// Seconds, where neither -timeout nor DDL_TIMEOUT says. launch/run.py has it, too, for hosts
// without a libddl; a test compares the two.
constexpr double kDefaultTimeout = 60.0;

// Seconds that one wait may last. Process-wide: ddl_set_timeout acts on waits from then on.
inline std::atomic<double> g_timeout_seconds{kDefaultTimeout};
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
