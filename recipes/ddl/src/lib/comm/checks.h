// Checks of the arguments that a program hands to the C interface. Each throws DDL_ERROR_ARGUMENT
// with the name of the function and of the argument, before anything is communicated.
#pragma once

#include <cstddef>

#include "base/arguments.h"
#include "comm/comm.h"

namespace ddl {

template <class T>
void set(T* out, T value, const char* function) {
  if (out == nullptr) fail(DDL_ERROR_ARGUMENT, function, ": the result pointer is null");
  *out = value;
}

void check_buffer(const char* function, const char* name, const void* buffer, std::size_t nbytes);
// The product, if memory can hold as many bytes.
std::size_t multiply(const char* function, std::size_t a, std::size_t b);
// Bytes up to the end of the last of `n` blocks, if memory can hold as many.
std::size_t extent(const char* function, const std::size_t* nbytes, const std::size_t* offsets,
                   int n);
void check_rank(const char* function, const char* name, int rank, const Comm& comm);
void check_group_tag(const char* function, int tag);
void check_message_tag(const char* function, int tag);
// `is_in_place`: the smaller buffer lies where it may lie inside the larger one.
void check_overlap(const char* function, const void* send, std::size_t send_bytes, const void* recv,
                   std::size_t recv_bytes, bool is_in_place);

// Both buffers must be in host memory, or both on a GPU.
void check_same_memory(const char* function, const void* send, std::size_t send_bytes,
                       const void* recv, std::size_t recv_bytes);

// The element type and the operation.
void check_reduction(const char* function, const Arguments& args);

// `send` and `recv` with as many bytes each, which are the same buffer or do not overlap.
void check_pair(const char* function, const Arguments& args, std::size_t nbytes);

// A buffer as messages call it.
struct NamedBuffer {
  const void* data;
  const char* name;
};

// A collective with `nbytes` on one side and size * nbytes on the other.
void check_blocks(const char* function, const Comm& comm, NamedBuffer small, NamedBuffer large,
                  std::size_t nbytes);
// The same, but the other side matters at the root only.
void check_rooted(const char* function, const Comm& comm, int root, NamedBuffer small,
                  NamedBuffer large, std::size_t nbytes);

}  // namespace ddl
