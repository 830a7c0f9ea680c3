// The requests of asynchronous calls in the C interface, and the statistics of communicators.
#include <ddl/ddl.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include "api/context.h"
#include "async/request.h"
#include "base/guard.h"
#include "comm/checks.h"

namespace ddl {
namespace {

// Frees the request, which is done; the result is its operation's.
DDL_Result take_outcome(ddl_request_t* request) {
  const std::unique_ptr<ddl_request> handle(std::exchange(*request, DDL_REQUEST_NULL));
  const Outcome& outcome = handle->state->outcome();
  if (outcome.code != DDL_SUCCESS) last_error() = outcome.message;
  return outcome.code;
}

// `is_done` tells whether the request is; it may wait.
template <class IsDone>
DDL_Result conclude(const char* function, ddl_request_t* request, int* flag,
                    const IsDone& is_done) {
  bool has_outcome = false;
  const DDL_Result checked = guard([&] {
    if (request == nullptr) {
      fail(DDL_ERROR_ARGUMENT, function, ": the request pointer is null");
    }
    const bool is_null = *request == DDL_REQUEST_NULL;
    has_outcome = !is_null && is_done(*(*request)->state);
    set(flag, is_null || has_outcome ? 1 : 0, function);
  });
  return checked == DDL_SUCCESS && has_outcome ? take_outcome(request) : checked;
}

// A deadline further off is none: clocks would overflow.
constexpr double kForever = 1e9;

}  // namespace
}  // namespace ddl

using namespace ddl;  // NOLINT: this file is nothing but the library's face

DDL_Result ddl_wait(ddl_request_t* request) {
  int is_done = 0;
  return conclude("ddl_wait", request, &is_done, [](Request& state) {
    state.wait();
    return true;
  });
}

DDL_Result ddl_test(ddl_request_t* request, int* is_done) {
  return conclude("ddl_test", request, is_done, [](Request& state) { return state.is_done(); });
}

DDL_Result ddl_wait_for(ddl_request_t* request, double seconds, int* is_done) {
  return conclude("ddl_wait_for", request, is_done, [&](Request& state) {
    if (!(seconds >= 0)) {
      fail(DDL_ERROR_ARGUMENT, "ddl_wait_for: ", seconds, " is not a number of seconds from 0 on");
    }
    const std::chrono::duration<double> wait(std::min(seconds, kForever));
    return state.wait_until(Clock::now() + std::chrono::duration_cast<Clock::duration>(wait));
  });
}

DDL_Result ddl_comm_stats(ddl_comm_t comm, ddl_stats* stats, size_t stats_size) {
  return guard([&] {
    const auto ctx = context();
    const ddl_stats known = ctx->resolve(comm).stats();
    if (stats == nullptr) fail(DDL_ERROR_ARGUMENT, "ddl_comm_stats: the result pointer is null");
    std::memset(stats, 0, stats_size);
    std::memcpy(stats, &known, std::min(stats_size, sizeof(known)));
  });
}
