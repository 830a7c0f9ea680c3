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
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl) \
  case type:                                                \
    return nbytes;
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
  }
  fail_for_type(type);
}

const char* name_of(DDL_Type type);
const char* name_of(DDL_Op op);

}  // namespace ddl
