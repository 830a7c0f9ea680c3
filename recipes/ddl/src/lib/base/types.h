// The element types and operations of ddl.h.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>

namespace ddl {

[[noreturn]] void fail_for_type(DDL_Type type);

// Throws DDL_ERROR_ARGUMENT on a number that is no type. Inline: a small allreduce asks for it
// several times.
inline std::size_t size_of(DDL_Type type) {
  switch (type) {
    case DDL_TYPE_HALF:
    case DDL_TYPE_BFLOAT16:
      return 2;
    case DDL_TYPE_FLOAT:
    case DDL_TYPE_INT32:
      return 4;
    case DDL_TYPE_DOUBLE:
    case DDL_TYPE_INT64:
      return 8;
  }
  fail_for_type(type);
}

const char* name_of(DDL_Type type);
const char* name_of(DDL_Op op);

}  // namespace ddl
