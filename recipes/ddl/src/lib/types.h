// The element types and operations of ddl.h.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>

namespace ddl {

// Throws DDL_ERROR_ARGUMENT on a number that is no type.
std::size_t size_of(DDL_Type type);

const char* name_of(DDL_Type type);
const char* name_of(DDL_Op op);

}  // namespace ddl
