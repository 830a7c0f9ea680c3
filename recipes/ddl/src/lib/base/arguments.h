// The arguments of a collective, from the C interface to the algorithms.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>

#include "base/types.h"

namespace ddl {

// The blocks of an alltoallv, in bytes: a number and an offset for every rank.
struct BlockLists {
  const std::size_t* send_bytes;
  const std::size_t* send_offsets;
  const std::size_t* recv_bytes;
  const std::size_t* recv_offsets;
};

// Every collective uses some of these; ddl.h says which, and explains them.
struct Arguments {
  const void* send = nullptr;
  void* recv = nullptr;
  std::size_t count = 0;  // elements of one block; bytes where nothing is reduced
  DDL_Type type = DDL_TYPE_FLOAT;
  DDL_Op op = DDL_OP_SUM;
  int root = 0;
  const BlockLists* lists = nullptr;

  // The size of a block of elements.
  std::size_t nbytes() const { return count * size_of(type); }
};

// Arguments of a collective that moves `nbytes` and reduces nothing.
inline Arguments bytes_to_move(const void* send, void* recv, std::size_t nbytes, int root = 0) {
  return {send, recv, nbytes, DDL_TYPE_FLOAT, DDL_OP_SUM, root};
}

}  // namespace ddl
