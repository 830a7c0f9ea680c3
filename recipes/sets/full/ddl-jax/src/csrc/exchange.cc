// Messages of XLA's groups: collective-permute is MPI's own, with a limit to its waiting, and
// all-to-all is ddl's.
#include <ddl/ddl.h>
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "abi.h"
#include "error.h"
#include "group.h"

namespace ddl_jax {
namespace {

// A message under way: whom it is waited for with.
struct Message {
  int peer;  // rank in MPI_COMM_WORLD
  bool is_sent;
};

struct Messages {
  std::mutex mutex;
  std::map<abi::Handle, Message> of_request;
};

Messages& messages() {
  static auto* const the = new Messages;
  return *the;
}

void remember(abi::Handle request, const Group& group, int peer, bool is_sent) {
  MPI_Group all;
  MPI_Group some;
  MPI_Comm_group(MPI_COMM_WORLD, &all);
  MPI_Comm_group(group.mpi, &some);
  Message message{peer, is_sent};
  MPI_Group_translate_ranks(some, 1, &peer, all, &message.peer);
  MPI_Group_free(&some);
  MPI_Group_free(&all);
  const std::lock_guard lock(messages().mutex);
  messages().of_request[request] = message;
}

bool take(abi::Handle request, Message* message) {
  const std::lock_guard lock(messages().mutex);
  const auto found = messages().of_request.find(request);
  if (found == messages().of_request.end()) return false;
  *message = found->second;
  messages().of_request.erase(found);
  return true;
}

int lost(const Message& message, double seconds) {
  const char* host = "";
  ddl_host_name(message.peer, &host);
  return failed("collective permute: rank " + std::to_string(message.peer) + " on host " + host +
                " did not " + (message.is_sent ? "receive" : "send") + " within " +
                std::to_string(static_cast<long>(seconds)) +
                " s; it may have ended, or run another program (ddlrun -timeout S waits longer)");
}

// Waits between two looks at MPI: not at all, then until others have had the core, then 50 us.
// libddl's own PollBackoff is not in its interface.
class PollBackoff {
 public:
  void wait() {
    ++turns_;
    if (turns_ < 1000) return;
    if (turns_ < 20000) {
      sched_yield();
    } else {
      usleep(50);
    }
  }

 private:
  long turns_ = 0;
};

// As libddl's: the clock runs on while the job is suspended, so no more than a second counts
// between two looks.
class Waited {
 public:
  double seconds() {
    const Clock::time_point now = Clock::now();
    sum_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
    return sum_.count();
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  std::chrono::duration<double> sum_{0};
};

int wait_for(MPI_Request* request, const Message& message) {
  double seconds = 0;
  ddl_get_timeout(&seconds);
  Waited waited;
  PollBackoff backoff;
  for (;;) {
    int is_done = 0;
    const int code = MPI_Test(request, &is_done, MPI_STATUS_IGNORE);
    if (code != MPI_SUCCESS || is_done) return code;
    if (waited.seconds() > seconds) return lost(message, seconds);
    backoff.wait();
  }
}

// The blocks as offsets from the first of them in memory.
struct Blocks {
  std::uintptr_t base = 0;
  std::size_t extent = 0;
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> nbytes;
};

template <class Pointer>
Blocks blocks_of(const std::vector<Pointer>& places, const Group& group, std::size_t nbytes,
                 int step) {
  Blocks blocks;
  blocks.offsets.assign(group.size, 0);
  blocks.nbytes.assign(group.size, 0);
  blocks.base = reinterpret_cast<std::uintptr_t>(*std::min_element(places.begin(), places.end()));
  for (int i = 0; i < static_cast<int>(places.size()); ++i) {
    const int peer = (group.rank + group.size + step * (i + 1)) % group.size;
    const std::size_t offset = reinterpret_cast<std::uintptr_t>(places[i]) - blocks.base;
    blocks.offsets[peer] = offset;
    blocks.nbytes[peer] = nbytes;
    blocks.extent = std::max(blocks.extent, offset + nbytes);
  }
  return blocks;
}

// Copies what is sent where XLA's buffers lie among each other, which ddl refuses.
std::unique_ptr<char[]> packed(const std::vector<const void*>& places, const Group& group,
                               Blocks* send, std::size_t nbytes) {
  std::unique_ptr<char[]> copy(new char[places.size() * nbytes]);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const auto peer = (group.rank + i + 1) % group.size;
    send->offsets[peer] = i * nbytes;
    std::copy_n(static_cast<const char*>(places[i]), nbytes, copy.get() + i * nbytes);
  }
  send->base = reinterpret_cast<std::uintptr_t>(copy.get());
  return copy;
}

int all_to_all(const Group& group, const Exchange& exchange) {
  Blocks send = blocks_of(exchange.send, group, exchange.nbytes, 1);
  const Blocks recv = blocks_of(exchange.recv, group, exchange.nbytes, -1);
  std::unique_ptr<char[]> copy;
  if (send.base < recv.base + recv.extent && recv.base < send.base + send.extent) {
    copy = packed(exchange.send, group, &send, exchange.nbytes);
  }
  return result_of(ddl_comm_alltoallv(
      group.ddl, reinterpret_cast<const void*>(send.base), send.nbytes.data(), send.offsets.data(),
      reinterpret_cast<void*>(recv.base), recv.nbytes.data(), recv.offsets.data()));
}

}  // namespace
}  // namespace ddl_jax

using namespace ddl_jax;  // NOLINT: this file ends with the library's face

extern "C" {

DDL_API int MPIABI_Isend(const void* buffer, int count, abi::Handle type, int dest, int tag,
                         abi::Handle comm, abi::Handle* request) {
  const int code = MPI_Isend(buffer, count, abi::value<MPI_Datatype>(type), dest, tag,
                             abi::value<MPI_Comm>(comm), abi::Out<MPI_Request>(request));
  const Group* const group = find_group(comm);
  if (code == MPI_SUCCESS && group != nullptr) remember(*request, *group, dest, true);
  return code;
}

DDL_API int MPIABI_Irecv(void* buffer, int count, abi::Handle type, int source, int tag,
                         abi::Handle comm, abi::Handle* request) {
  const int code = MPI_Irecv(buffer, count, abi::value<MPI_Datatype>(type), source, tag,
                             abi::value<MPI_Comm>(comm), abi::Out<MPI_Request>(request));
  const Group* const group = find_group(comm);
  if (code == MPI_SUCCESS && group != nullptr) remember(*request, *group, source, false);
  return code;
}

DDL_API int MPIABI_Wait(abi::Handle* request, abi::Status* status) {
  Message message{};
  if (!take(*request, &message)) {
    return MPI_Wait(abi::Out<MPI_Request>(request), abi::Statuses(status, 1));
  }
  return wait_for(abi::Out<MPI_Request>(request), message);
}

DDL_API int MPIABI_Sendrecv(const void* send, int send_count, abi::Handle send_type, int dest,
                            int send_tag, void* recv, int recv_count, abi::Handle recv_type,
                            int source, int recv_tag, abi::Handle comm, abi::Status* status) {
  Group* const group = find_group(comm);
  const int distance = group == nullptr ? 0 : static_cast<int>(group->exchange.send.size()) + 1;
  const bool is_next = group != nullptr && send_count == recv_count && send_count >= 0 &&
                       abi::value<MPI_Datatype>(send_type) == MPI_BYTE &&
                       dest == (group->rank + distance) % group->size &&
                       source == (group->rank + group->size - distance) % group->size;
  if (!is_next) {
    return MPI_Sendrecv(send, send_count, abi::value<MPI_Datatype>(send_type), dest, send_tag, recv,
                        recv_count, abi::value<MPI_Datatype>(recv_type), source, recv_tag,
                        abi::value<MPI_Comm>(comm), abi::Statuses(status, 1));
  }
  Exchange& exchange = group->exchange;
  exchange.send.push_back(send);
  exchange.recv.push_back(recv);
  exchange.nbytes = send_count;
  if (distance < group->size - 1) return MPI_SUCCESS;
  const int code = all_to_all(*group, exchange);
  exchange = {};
  return code;
}
}
