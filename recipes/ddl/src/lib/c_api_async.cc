// The asynchronous part of the C interface.
#include <ddl/ddl.h>
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <utility>

#include "arguments.h"
#include "collective/collectives.h"
#include "context.h"
#include "guard.h"

struct ddl_request {
  std::shared_ptr<ddl::Request> state;
};

namespace ddl {
namespace {

const char* name_of_level(int level) {
  if (level == MPI_THREAD_SINGLE) return "MPI_THREAD_SINGLE";
  return level == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED" : "MPI_THREAD_SERIALIZED";
}

// The worker calls MPI at times that the program does not know of.
void check_threads(const char* function) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Query_thread(&provided);
  if (provided >= MPI_THREAD_MULTIPLE) return;
  fail(DDL_ERROR_ARGUMENT, function,
       ": asynchronous calls need MPI_THREAD_MULTIPLE, but MPI was started with ",
       name_of_level(provided),
       "; start it with MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...), or let ddl_init start it, "
       "or use the blocking calls");
}

// `start` checks the other arguments and gives the request's state.
template <class Start>
DDL_Result submit(const char* function, ddl_comm_t comm, ddl_request_t* request,
                  const Start& start) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    if (request == nullptr) {
      fail(DDL_ERROR_ARGUMENT, function, ": the request pointer is null");
    }
    check_threads(function);
    auto handle = std::make_unique<ddl_request>();
    handle->state = start(group);
    *request = handle.release();
  });
}

// An operation for the worker, in order with the stream of the thread that asks for it.
template <class Run>
std::function<void()> in_stream_order(Run run) {
  return [run, stream = t_stream] {
    const StreamScope scope(stream);
    run();
  };
}

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

DDL_Result ddl_comm_iallreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                               DDL_Type type, DDL_Op op, ddl_request_t* request) {
  return submit("iallreduce", comm, request, [&](Comm& group) {
    check_allreduce("iallreduce", send, recv, count, type, op);
    if (count > 0 && is_on_device(recv)) {  // never fused
      return group.queue().submit(
          in_stream_order([=, &group] { allreduce(group, send, recv, count, type, op); }));
    }
    return group.queue().submit(Allreduce{send, recv, count, type, op});
  });
}

DDL_Result ddl_comm_ireduce_scatter(ddl_comm_t comm, const void* send, void* recv,
                                    size_t recv_count, DDL_Type type, DDL_Op op,
                                    ddl_request_t* request) {
  return submit("ireduce_scatter", comm, request, [&](Comm& group) {
    check_reduce_scatter("ireduce_scatter", group, send, recv, recv_count, type, op);
    return group.queue().submit(
        in_stream_order([=, &group] { reduce_scatter(group, send, recv, recv_count, type, op); }));
  });
}

DDL_Result ddl_comm_ibroadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root,
                               ddl_request_t* request) {
  return submit("ibroadcast", comm, request, [&](Comm& group) {
    check_broadcast("ibroadcast", group, buffer, nbytes, root);
    return group.queue().submit(
        in_stream_order([=, &group] { broadcast(group, buffer, nbytes, root); }));
  });
}

DDL_Result ddl_comm_iallgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                               ddl_request_t* request) {
  return submit("iallgather", comm, request, [&](Comm& group) {
    check_allgather("iallgather", group, send, recv, nbytes);
    return group.queue().submit(
        in_stream_order([=, &group] { allgather(group, send, recv, nbytes); }));
  });
}

DDL_Result ddl_comm_ibarrier(ddl_comm_t comm, ddl_request_t* request) {
  return submit("ibarrier", comm, request,
                [&](Comm& group) { return group.queue().submit([&group] { barrier(group); }); });
}

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
