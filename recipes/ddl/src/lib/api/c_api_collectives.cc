// The collectives of the C interface, blocking and asynchronous: each function names its row.
#include <ddl/ddl.h>
#include <mpi.h>

#include <memory>

#include "api/bindings.h"
#include "api/context.h"
#include "base/guard.h"
#include "collective/run.h"

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

void check_not_captured(const char* function, const Arguments& args) {
  ddl::check_not_captured(function, args.send);
  ddl::check_not_captured(function, args.recv);
}

void call(ddl_comm_t comm, const Row& row, const Arguments& args) {
  const auto ctx = context();
  Comm& group = ctx->resolve(comm);
  row.check(row.name, group, args);
  if (row.on_device == nullptr) check_not_captured(row.name, args);
  run(group, row, args);
}

void submit(ddl_comm_t comm, const Row& row, const Arguments& args, ddl_request_t* request) {
  const auto ctx = context();
  Comm& group = ctx->resolve(comm);
  if (request == nullptr) {
    fail(DDL_ERROR_ARGUMENT, row.async_name, ": the request pointer is null");
  }
  check_threads(row.async_name);
  row.check(row.async_name, group, args);
  check_not_captured(row.async_name, args);
  auto handle = std::make_unique<ddl_request>();
  handle->state = start(group, row, args);
  *request = handle.release();
}

DDL_Result guarded(ddl_comm_t comm, const Row& row, const Arguments& args) {
  return guard([&] { call(comm, row, args); });
}

DDL_Result guarded(ddl_comm_t comm, const Row& row, const Arguments& args, ddl_request_t* request) {
  return guard([&] { submit(comm, row, args, request); });
}

}  // namespace
}  // namespace ddl

using namespace ddl;  // NOLINT: this file is nothing but the library's face

DDL_Result ddl_run_by_name(const char* name, ddl_comm_t comm, const void* send, void* recv,
                           size_t count, DDL_Type type, DDL_Op op, int root) {
  return guard([&] { call(comm, find_row(name), {send, recv, count, type, op, root}); });
}

DDL_Result ddl_start_by_name(const char* name, ddl_comm_t comm, const void* send, void* recv,
                             size_t count, DDL_Type type, DDL_Op op, int root,
                             ddl_request_t* request) {
  return guard([&] {
    const Row& row = find_row(name);
    if (row.async_name == nullptr) {
      fail(DDL_ERROR_ARGUMENT, row.name, ": there is no asynchronous one");
    }
    submit(comm, row, {send, recv, count, type, op, root}, request);
  });
}

DDL_Result ddl_comm_allreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                              DDL_Type type, DDL_Op op) {
  return guarded(comm, kAllreduceRow, {send, recv, count, type, op});
}

DDL_Result ddl_comm_iallreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                               DDL_Type type, DDL_Op op, ddl_request_t* request) {
  return guarded(comm, kAllreduceRow, {send, recv, count, type, op}, request);
}

DDL_Result ddl_allreduce(void* buffer, size_t count, DDL_Type type, DDL_Op op) {
  return guarded(DDL_COMM_WORLD, kAllreduceRow, {buffer, buffer, count, type, op});
}

DDL_Result ddl_comm_reduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                           DDL_Type type, DDL_Op op, int root) {
  return guarded(comm, kReduceRow, {send, recv, count, type, op, root});
}

DDL_Result ddl_comm_ireduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                            DDL_Type type, DDL_Op op, int root, ddl_request_t* request) {
  return guarded(comm, kReduceRow, {send, recv, count, type, op, root}, request);
}

DDL_Result ddl_reduce(const void* send, void* recv, size_t count, DDL_Type type, DDL_Op op,
                      int root) {
  return guarded(DDL_COMM_WORLD, kReduceRow, {send, recv, count, type, op, root});
}

DDL_Result ddl_comm_reduce_scatter(ddl_comm_t comm, const void* send, void* recv, size_t recv_count,
                                   DDL_Type type, DDL_Op op) {
  return guarded(comm, kReduceScatterRow, {send, recv, recv_count, type, op});
}

DDL_Result ddl_comm_ireduce_scatter(ddl_comm_t comm, const void* send, void* recv,
                                    size_t recv_count, DDL_Type type, DDL_Op op,
                                    ddl_request_t* request) {
  return guarded(comm, kReduceScatterRow, {send, recv, recv_count, type, op}, request);
}

DDL_Result ddl_comm_broadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root) {
  return guarded(comm, kBroadcastRow, bytes_to_move(buffer, buffer, nbytes, root));
}

DDL_Result ddl_comm_ibroadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root,
                               ddl_request_t* request) {
  return guarded(comm, kBroadcastRow, bytes_to_move(buffer, buffer, nbytes, root), request);
}

DDL_Result ddl_comm_allgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes) {
  return guarded(comm, kAllgatherRow, bytes_to_move(send, recv, nbytes));
}

DDL_Result ddl_comm_iallgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                               ddl_request_t* request) {
  return guarded(comm, kAllgatherRow, bytes_to_move(send, recv, nbytes), request);
}

DDL_Result ddl_comm_barrier(ddl_comm_t comm) { return guarded(comm, kBarrierRow, {}); }

DDL_Result ddl_comm_ibarrier(ddl_comm_t comm, ddl_request_t* request) {
  return guarded(comm, kBarrierRow, {}, request);
}

DDL_Result ddl_comm_gather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes, int root) {
  return guarded(comm, kGatherRow, bytes_to_move(send, recv, nbytes, root));
}

DDL_Result ddl_comm_scatter(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                            int root) {
  return guarded(comm, kScatterRow, bytes_to_move(send, recv, nbytes, root));
}

DDL_Result ddl_comm_alltoall(ddl_comm_t comm, const void* send, void* recv, size_t nbytes) {
  return guarded(comm, kAlltoallRow, bytes_to_move(send, recv, nbytes));
}

DDL_Result ddl_comm_alltoallv(ddl_comm_t comm, const void* send, const size_t* send_bytes,
                              const size_t* send_offsets, void* recv, const size_t* recv_bytes,
                              const size_t* recv_offsets) {
  const BlockLists lists{send_bytes, send_offsets, recv_bytes, recv_offsets};
  Arguments args = bytes_to_move(send, recv, 0);
  args.lists = &lists;
  return guarded(comm, kAlltoallvRow, args);
}
