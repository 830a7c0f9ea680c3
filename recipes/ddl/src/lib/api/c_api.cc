// The C interface but for the collectives: it checks arguments and turns exceptions into codes.
#include <ddl/ddl.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "api/bindings.h"
#include "api/context.h"
#include "base/guard.h"
#include "base/timeout.h"
#include "collective/host_copy.h"
#include "comm/checks.h"

namespace ddl {
namespace {

ddl_comm_t handle_of(Comm* comm) { return reinterpret_cast<ddl_comm_t>(comm); }

template <class Get>
DDL_Result get_int(const char* function, int* out, const Get& get) {
  return guard([&] { set(out, get(context_to_read()->world()), function); });
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

int ddl_is_forked(void) { return is_forked() ? 1 : 0; }

namespace {

// ddlrun's wrapper (rank.py) is our parent: it tells ddlrun how we end, after our last words.
bool is_watched_by_ddlrun() {
  const char* wrapper = std::getenv("DDLRUN_WRAPPER");
  return wrapper != nullptr && std::strtol(wrapper, nullptr, 10) == getppid();
}

}  // namespace

void ddl_abort(int exit_code, const char* reason) {
  std::string who = "a rank that is not initialised";
  if (has_context()) {
    const auto ctx = context_to_read();
    who = ctx->world().describe(ctx->world().rank());
    if (!is_forked()) ctx->save_timeline();
  }
  std::fprintf(stderr, "[ddl] %s ends the job: %s\n", who.c_str(),
               reason == nullptr ? "no reason given" : reason);
  std::fflush(stderr);
  // MPI_Abort would be faster than these words, since Hydra drops output that it has not yet read.
  if (is_watched_by_ddlrun()) std::_Exit((exit_code & 0xff) == 0 ? 1 : exit_code);
  int is_initialized = 0;
  int is_finalized = 0;
  MPI_Initialized(&is_initialized);
  MPI_Finalized(&is_finalized);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for the same reason
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

const char* ddl_cuda_library(void) { return cuda_library(); }

DDL_Result ddl_set_stream(void* stream) {
  return guard([&] {
    check_device_present("ddl_set_stream");
    t_stream = stream;
  });
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
    const Comm& world = context_to_read()->world();
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

DDL_Result ddl_use_timeout(const double* seconds) {
  return guard([&] { t_timeout_seconds = seconds; });
}

DDL_Result ddl_comm_create(const int* world_ranks, int n, int tag, ddl_comm_t* comm) {
  return guard([&] {
    if (world_ranks == nullptr || n < 1 || comm == nullptr) {
      fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: needs at least one rank and a result pointer");
    }
    check_group_tag("ddl_comm_create", tag);
    const auto ctx = context();
    const int size = ctx->world().size();
    if (n > size) {
      fail(DDL_ERROR_ARGUMENT, "ddl_comm_create: ", n, " ranks are more than the ", size,
           " of the job");
    }
    *comm = handle_of(ctx->create(std::vector<int>(world_ranks, world_ranks + n), tag));
  });
}

DDL_Result ddl_comm_free(ddl_comm_t comm) {
  return guard([&] { context()->destroy(reinterpret_cast<Comm*>(comm)); });
}

DDL_Result ddl_comm_rank(ddl_comm_t comm, int* rank) {
  return guard([&] { set(rank, context_to_read()->resolve(comm).rank(), "ddl_comm_rank"); });
}

DDL_Result ddl_comm_size(ddl_comm_t comm, int* size) {
  return guard([&] { set(size, context_to_read()->resolve(comm).size(), "ddl_comm_size"); });
}

DDL_Result ddl_comm_send(ddl_comm_t comm, const void* buffer, size_t nbytes, int dest, int tag) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rank("send", "dest", dest, group);
    check_message_tag("send", tag);
    check_buffer("send", "buffer", buffer, nbytes);
    check_not_captured("send", buffer);
    const HostInput input(group, buffer, nbytes);
    group.mailbox().send(input.data(), nbytes, dest, tag);
  });
}

DDL_Result ddl_comm_recv(ddl_comm_t comm, void* buffer, size_t nbytes, int source, int tag) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_rank("recv", "source", source, group);
    check_message_tag("recv", tag);
    check_buffer("recv", "buffer", buffer, nbytes);
    check_not_captured("recv", buffer);
    HostOutput output(group, buffer, nbytes);
    group.mailbox().recv(output.data(), nbytes, source, tag);
    output.deliver(0, nbytes);
  });
}

DDL_Result ddl_comm_recv_any(ddl_comm_t comm, void* buffer, size_t nbytes, int tag, int* source) {
  return guard([&] {
    const auto ctx = context();
    Comm& group = ctx->resolve(comm);
    check_message_tag("recv_any", tag);
    check_buffer("recv_any", "buffer", buffer, nbytes);
    check_not_captured("recv_any", buffer);
    HostOutput output(group, buffer, nbytes);
    const int sender = group.mailbox().recv(output.data(), nbytes, Batch::kAnyRank, tag);
    output.deliver(0, nbytes);
    if (source != nullptr) *source = sender;
  });
}

DDL_Result ddl_malloc(void** pointer, size_t alignment, size_t nbytes) {
  return guard([&] {
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      fail(DDL_ERROR_ARGUMENT, "ddl_malloc: the alignment is ", alignment,
           " but must be a power of two");
    }
    if (pointer == nullptr) fail(DDL_ERROR_ARGUMENT, "ddl_malloc: the result pointer is null");
    void* memory = nullptr;
    const std::size_t least = std::max(alignment, sizeof(void*));
    if (posix_memalign(&memory, least, std::max(nbytes, std::size_t{1})) != 0) {
      fail(DDL_ERROR_SYSTEM, "ddl_malloc: no memory for ", nbytes, " bytes");
    }
    *pointer = memory;
  });
}

DDL_Result ddl_free(void* pointer) {
  std::free(pointer);
  return DDL_SUCCESS;
}
