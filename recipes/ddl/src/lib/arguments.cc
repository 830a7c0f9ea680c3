#include "arguments.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace ddl {
namespace {

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
  check_same_memory(function, small, nbytes, large, all);
}

}  // namespace

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

std::size_t extent(const char* function, const std::size_t* nbytes, const std::size_t* offsets,
                   int n) {
  std::size_t end = 0;
  for (int i = 0; i < n; ++i) {
    if (nbytes[i] == 0) continue;
    if (offsets[i] > std::numeric_limits<std::size_t>::max() - nbytes[i]) {
      fail(DDL_ERROR_ARGUMENT, function, ": ", nbytes[i], " bytes at ", offsets[i],
           " are more than memory can hold");
    }
    end = std::max(end, offsets[i] + nbytes[i]);
  }
  return end;
}

void check_rank(const char* function, const char* name, int rank, const Comm& comm) {
  if (rank < 0 || rank >= comm.size()) {
    fail(DDL_ERROR_ARGUMENT, function, ": ", name, " is ", rank, " but must be from 0 to ",
         comm.size() - 1);
  }
}

void check_group_tag(const char* function, int tag) {
  if (tag < 0 || tag > 32767) {
    fail(DDL_ERROR_ARGUMENT, function, ": the tag is ", tag, " but must be from 0 to 32767");
  }
}

void check_message_tag(const char* function, int tag) {
  if (tag < 0)
    fail(DDL_ERROR_ARGUMENT, function, ": the tag is ", tag, " but must not be negative");
}

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

void check_same_memory(const char* function, const void* send, std::size_t send_bytes,
                       const void* recv, std::size_t recv_bytes) {
  if (send == recv || send_bytes == 0 || recv_bytes == 0) return;
  if (is_on_device(send) == is_on_device(recv)) return;
  fail(DDL_ERROR_ARGUMENT, function, ": ", is_on_device(send) ? "send" : "recv",
       " is on a GPU and ", is_on_device(send) ? "recv" : "send",
       " in host memory; give both in the same memory");
}

void check_allreduce(const char* function, const void* send, const void* recv, std::size_t count,
                     DDL_Type type, DDL_Op op) {
  check_reduction(function, type, op);
  const std::size_t nbytes = multiply(function, count, size_of(type));
  check_buffer(function, "send", send, nbytes);
  check_buffer(function, "recv", recv, nbytes);
  check_overlap(function, send, nbytes, recv, nbytes, send == recv);
  check_same_memory(function, send, nbytes, recv, nbytes);
}

void check_reduce_scatter(const char* function, const Comm& comm, const void* send,
                          const void* recv, std::size_t recv_count, DDL_Type type, DDL_Op op) {
  check_reduction(function, type, op);
  const std::size_t nbytes = multiply(function, recv_count, size_of(type));
  check_blocks(function, comm, recv, "recv", send, "send", nbytes);
}

void check_broadcast(const char* function, const Comm& comm, const void* buffer, std::size_t nbytes,
                     int root) {
  check_rank(function, "root", root, comm);
  check_buffer(function, "buffer", buffer, nbytes);
}

void check_allgather(const char* function, const Comm& comm, const void* send, const void* recv,
                     std::size_t nbytes) {
  check_blocks(function, comm, send, "send", recv, "recv", nbytes);
}

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

}  // namespace ddl
