#include "comm/checks.h"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace ddl {
namespace {

const void* offset(const void* base, std::size_t nbytes) {
  return static_cast<const std::byte*>(base) + nbytes;
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
  if (tag < 0 || tag >= tags::kProgramGroups.count) {
    fail(DDL_ERROR_ARGUMENT, function, ": the tag is ", tag, " but must be from 0 to ",
         tags::kProgramGroups.count - 1);
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

void check_reduction(const char* function, const Arguments& args) {
  size_of(args.type);
  if (args.op < DDL_OP_SUM || args.op > DDL_OP_AVERAGE) {
    fail(DDL_ERROR_ARGUMENT, function, ": unknown operation ", static_cast<int>(args.op),
         "; use one of the DDL_OP_ values of ddl.h");
  }
  const bool is_integer = args.type == DDL_TYPE_INT32 || args.type == DDL_TYPE_INT64;
  if (args.op == DDL_OP_AVERAGE && is_integer) {
    fail(DDL_ERROR_ARGUMENT, function, ": the average of ", name_of(args.type),
         " is not a whole number; sum and divide, or use a floating-point type");
  }
}

void check_pair(const char* function, const Arguments& args, std::size_t nbytes) {
  check_buffer(function, "send", args.send, nbytes);
  check_buffer(function, "recv", args.recv, nbytes);
  check_overlap(function, args.send, nbytes, args.recv, nbytes, args.send == args.recv);
  check_same_memory(function, args.send, nbytes, args.recv, nbytes);
}

void check_blocks(const char* function, const Comm& comm, NamedBuffer small, NamedBuffer large,
                  std::size_t nbytes) {
  const std::size_t all = multiply(function, nbytes, comm.size());
  check_buffer(function, small.name, small.data, nbytes);
  check_buffer(function, large.name, large.data, all);
  const bool is_in_place = small.data == offset(large.data, comm.rank() * nbytes);
  check_overlap(function, small.data, nbytes, large.data, all, is_in_place);
  check_same_memory(function, small.data, nbytes, large.data, all);
}

void check_rooted(const char* function, const Comm& comm, int root, NamedBuffer small,
                  NamedBuffer large, std::size_t nbytes) {
  check_rank(function, "root", root, comm);
  if (comm.rank() == root) {
    check_blocks(function, comm, small, large, nbytes);
  } else {
    check_buffer(function, small.name, small.data, nbytes);
  }
}

}  // namespace ddl
