// The C interface: arguments are checked here, exceptions become codes here.
#include <ddl/ddl.h>
#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>

#include "collective/collectives.h"
#include "context.h"
#include "guard.h"

namespace ddl {
namespace {

ddl_comm_t handle_of(Comm* comm) { return reinterpret_cast<ddl_comm_t>(comm); }

template <class T>
void set(T* out, T value, const char* function) {
  if (out == nullptr) fail(DDL_ERROR_ARGUMENT, function, ": the result pointer is null");
  *out = value;
}

void check_buffer(const char* function, const char* name, const void* buffer, std::size_t nbytes) {
  if (buffer == nullptr && nbytes > 0) {
    fail(DDL_ERROR_ARGUMENT, function, ": ", name, " is null but ", nbytes, " bytes are asked for");
  }
}

std::size_t multiply(const char* function, std::size_t a, std::size_t b) {
  if (b != 0 && a > std::numeric_limits<std::size_t>::max() / b) {
    fail(DDL_ERROR_ARGUMENT, function, ": ", a, " times ", b,
         " bytes is more than memory can hold");
  }
  return a * b;
}

void check_rank(const char* function, const char* name, int rank, const Comm& comm) {
  if (rank < 0 || rank >= comm.size()) {
    fail(DDL_ERROR_ARGUMENT, function, ": ", name, " is ", rank, " but must be from 0 to ",
         comm.size() - 1);
  }
}

void check_tag(const char* function, int tag) {
  if (tag < 0 || tag > 32767) {
    fail(DDL_ERROR_ARGUMENT, function, ": the tag is ", tag, " but must be from 0 to 32767");
  }
}

void check_reduction(const char* function, DDL_Type type, DDL_Op op) {
  size_of(type);
  if (op < DDL_OP_SUM || op > DDL_OP_AVERAGE) {
    fail(DDL_ERROR_ARGUMENT, function, ": unknown operation ", static_cast<int>(op),
         "; use one of the DDL_OP_ values of ddl.h");
  }
  if (op == DDL_OP_AVERAGE && (type == DDL_TYPE_INT32 || type == DDL_TYPE_INT64)) {
    fail(DDL_ERROR_ARGUMENT, function, ": the average of ", name_of(type),
         " is not a whole number; sum and divide, or use a floating-point type");
  }
}

// `in_place` is where the smaller buffer may lie inside the larger one.
void check_overlap(const char* function, const void* send, std::size_t send_bytes, const void* recv,
                   std::size_t recv_bytes, bool is_in_place) {
  if (is_in_place || send_bytes == 0 || recv_bytes == 0) return;
  const auto a = reinterpret_cast<std::uintptr_t>(send);
  const auto b = reinterpret_cast<std::uintptr_t>(recv);
  if (a < b + recv_bytes && b < a + send_bytes) {
    fail(DDL_ERROR_ARGUMENT, function,
         ": send and recv overlap; give the in-place position of ddl.h "
         "or separate buffers");
  }
}

const void* offset(const void* base, std::size_t nbytes) {
  return static_cast<const std::byte*>(base) + nbytes;
}

// A collective with `nbytes` on one side and size * nbytes on the other.
void check_blocks(const char* function, const Comm& comm, const void* small, const char* small_name,
                  const void* large, const char* large_name, std::size_t nbytes) {
  const std::size_t all = multiply(function, nbytes, comm.size());
  check_buffer(function, small_name, small, nbytes);
  check_buffer(function, large_name, large, all);
  check_overlap(function, small, nbytes, large, all, small == offset(large, comm.rank() * nbytes));
}

// The large side matters at the root only.
void check_rooted(const char* function, const Comm& comm, int root, const void* small,
                  const char* small_name, const void* large, const char* large_name,
                  std::size_t nbytes) {
  check_rank(function, "root", root, comm);
  if (comm.rank() == root) {
    check_blocks(function, comm, small, small_name, large, large_name, nbytes);
  } else {
    check_buffer(function, small_name, small, nbytes);
  }
}

template <class Get>
DDL_Result get_int(const char* function, int* out, const Get& get) {
  return guard([&] { set(out, get(context()->world()), function); });
}

}  // namespace
}  // namespace ddl

using namespace ddl;  // NOLINT: this file is nothing but the library's face

DDL_Result ddl_init(const char* options) {
  return guard([&] { start(options); });
}

DDL_Result ddl_finalize(void) {
  return guard([] { stop(); });
}

int ddl_initialized(void) { return has_context() ? 1 : 0; }

void ddl_abort(int exit_code, const char* reason) {
  std::string who = "a rank that is not initialised";
  if (has_context()) who = context()->world().describe(context()->world().rank());
  std::fprintf(stderr, "[ddl] %s ends the job: %s\n", who.c_str(),
               reason == nullptr ? "no reason given" : reason);
  std::fflush(stderr);
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  // The launcher may drop what it has not yet read of our output once it hears of the abort.
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  if (is_initialized && !is_finalized) MPI_Abort(MPI_COMM_WORLD, exit_code);
  std::_Exit(exit_code);
}

const char* ddl_last_error(void) { return last_error().c_str(); }

const char* ddl_version(void) { return DDL_VERSION; }

const char* ddl_mpi_library(void) {
  static const std::string text = [] {
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(version, &length);
    return std::string(version, length);
  }();
  return text.c_str();
}

DDL_Result ddl_rank(int* rank) {
  return get_int("ddl_rank", rank, [](Comm& world) { return world.rank(); });
}

DDL_Result ddl_size(int* size) {
  return get_int("ddl_size", size, [](Comm& world) { return world.size(); });
}

DDL_Result ddl_local_rank(int* local_rank) {
  return get_int("ddl_local_rank", local_rank,
                 [](Comm& world) { return world.topology().local_rank(world.rank()); });
}

DDL_Result ddl_local_size(int* local_size) {
  return get_int("ddl_local_size", local_size,
                 [](Comm& world) { return static_cast<int>(world.local_ranks().size()); });
}

DDL_Result ddl_num_hosts(int* num_hosts) {
  return get_int("ddl_num_hosts", num_hosts, [](Comm& world) { return world.num_hosts(); });
}

DDL_Result ddl_host_index(int* host_index) {
  return get_int("ddl_host_index", host_index, [](Comm& world) { return world.host_index(); });
}

DDL_Result ddl_host_of(int rank, int* host_index) {
  return get_int("ddl_host_of", host_index, [&](Comm& world) {
    check_rank("ddl_host_of", "rank", rank, world);
    return world.topology().host_index(rank);
  });
}

DDL_Result ddl_host_name(int rank, const char** name) {
  return guard([&] {
    const Comm& world = context()->world();
    check_rank("ddl_host_name", "rank", rank, world);
    set(name, world.topology().host_of(rank).name.c_str(), "ddl_host_name");
  });
}

DDL_Result ddl_set_timeout(double seconds) {
  return guard([&] {
    if (!(seconds > 0) || seconds > 1e9) {
      fail(DDL_ERROR_ARGUMENT, "ddl_set_timeout: ", seconds, " is not a number of seconds above 0");
    }
    context();
    g_timeout_seconds = seconds;
  });
}

DDL_Result ddl_get_timeout(double* seconds) {
  return guard([&] { set(seconds, g_timeout_seconds.load(), "ddl_get_timeout"); });
}

DDL_Result ddl_comm_create(const int* world_ranks, int n, int tag, ddl_comm_t* comm) {
  return guard([&] {
    if (world_ranks == nullptr || n < 1 || comm == nullptr) {
      fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: needs at least one rank and a result pointer");
    }
    check_tag("ddl_comm_create", tag);
    *comm = handle_of(context()->create(std::vector<int>(world_ranks, world_ranks + n), tag));
  });
}

DDL_Result ddl_comm_free(ddl_comm_t comm) {
  return guard([&] { context()->destroy(reinterpret_cast<Comm*>(comm)); });
}

DDL_Result ddl_comm_rank(ddl_comm_t comm, int* rank) {
  return guard([&] { set(rank, context()->resolve(comm).rank(), "ddl_comm_rank"); });
}

DDL_Result ddl_comm_size(ddl_comm_t comm, int* size) {
  return guard([&] { set(size, context()->resolve(comm).size(), "ddl_comm_size"); });
}

DDL_Result ddl_comm_allreduce(ddl_comm_t comm, const void* send, void* recv, size_t count,
                              DDL_Type type, DDL_Op op) {
  return guard([&] {
    const auto ctx = context();
    check_reduction("allreduce", type, op);
    const std::size_t nbytes = multiply("allreduce", count, size_of(type));
    check_buffer("allreduce", "send", send, nbytes);
    check_buffer("allreduce", "recv", recv, nbytes);
    check_overlap("allreduce", send, nbytes, recv, nbytes, send == recv);
    allreduce(ctx->resolve(comm), send, recv, count, type, op);
  });
}

DDL_Result ddl_comm_reduce_scatter(ddl_comm_t comm, const void* send, void* recv, size_t recv_count,
                                   DDL_Type type, DDL_Op op) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_reduction("reduce_scatter", type, op);
    const std::size_t nbytes = multiply("reduce_scatter", recv_count, size_of(type));
    check_blocks("reduce_scatter", group, recv, "recv", send, "send", nbytes);
    reduce_scatter(group, send, recv, recv_count, type, op);
  });
}

DDL_Result ddl_comm_broadcast(ddl_comm_t comm, void* buffer, size_t nbytes, int root) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rank("broadcast", "root", root, group);
    check_buffer("broadcast", "buffer", buffer, nbytes);
    broadcast(group, buffer, nbytes, root);
  });
}

DDL_Result ddl_comm_allgather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_blocks("allgather", group, send, "send", recv, "recv", nbytes);
    allgather(group, send, recv, nbytes);
  });
}

DDL_Result ddl_comm_barrier(ddl_comm_t comm) {
  return guard([&] { barrier(context()->resolve(comm)); });
}

DDL_Result ddl_comm_gather(ddl_comm_t comm, const void* send, void* recv, size_t nbytes, int root) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rooted("gather", group, root, send, "send", recv, "recv", nbytes);
    gather(group, send, recv, nbytes, root);
  });
}

DDL_Result ddl_comm_scatter(ddl_comm_t comm, const void* send, void* recv, size_t nbytes,
                            int root) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rooted("scatter", group, root, recv, "recv", send, "send", nbytes);
    scatter(group, send, recv, nbytes, root);
  });
}

DDL_Result ddl_comm_alltoall(ddl_comm_t comm, const void* send, void* recv, size_t nbytes) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    const std::size_t all = multiply("alltoall", nbytes, group.size());
    check_buffer("alltoall", "send", send, all);
    check_buffer("alltoall", "recv", recv, all);
    check_overlap("alltoall", send, all, recv, all, false);
    alltoall(group, send, recv, nbytes);
  });
}

DDL_Result ddl_comm_alltoallv(ddl_comm_t comm, const void* send, const size_t* send_bytes,
                              const size_t* send_offsets, void* recv, const size_t* recv_bytes,
                              const size_t* recv_offsets) {
  return guard([&] {
    const auto ctx = context();
    if (send_bytes == nullptr || send_offsets == nullptr || recv_bytes == nullptr ||
        recv_offsets == nullptr) {
      fail(DDL_ERROR_ARGUMENT, "alltoallv: a list of counts or offsets is null");
    }
    alltoallv(ctx->resolve(comm), send, send_bytes, send_offsets, recv, recv_bytes, recv_offsets);
  });
}

DDL_Result ddl_comm_send(ddl_comm_t comm, const void* buffer, size_t nbytes, int dest, int tag) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rank("send", "dest", dest, group);
    check_tag("send", tag);
    check_buffer("send", "buffer", buffer, nbytes);
    Batch batch(group.transport());
    batch.send(buffer, nbytes, dest, tag);
    batch.wait();
  });
}

DDL_Result ddl_comm_recv(ddl_comm_t comm, void* buffer, size_t nbytes, int source, int tag) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rank("recv", "source", source, group);
    check_tag("recv", tag);
    check_buffer("recv", "buffer", buffer, nbytes);
    Batch batch(group.transport());
    batch.recv(buffer, nbytes, source, tag);
    batch.wait();
  });
}

DDL_Result ddl_allreduce(void* buffer, size_t count, DDL_Type type, DDL_Op op) {
  return ddl_comm_allreduce(DDL_COMM_WORLD, buffer, buffer, count, type, op);
}

DDL_Result ddl_malloc(void** pointer, size_t alignment, size_t nbytes) {
  return guard([&] {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      fail(DDL_ERROR_ARGUMENT, "ddl_malloc: the alignment is ", alignment,
           " but must be a power of two");
    }
    void* memory = nullptr;
    const std::size_t least = std::max(alignment, sizeof(void*));
    if (posix_memalign(&memory, least, std::max(nbytes, std::size_t{1})) != 0) {
      fail(DDL_ERROR_SYSTEM, "ddl_malloc: no memory for ", nbytes, " bytes");
    }
    set(pointer, memory, "ddl_malloc");
  });
}

DDL_Result ddl_free(void* pointer) {
  std::free(pointer);
  return DDL_SUCCESS;
}
