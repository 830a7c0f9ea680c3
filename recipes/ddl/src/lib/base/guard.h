// Stops exceptions: no C++ exception crosses the C interface.
#pragma once

#include <ddl/ddl.h>

#include <new>
#include <string>

#include "base/error.h"

namespace ddl {

// This thread's latest error.
inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

inline DDL_Result keep_error(const Error& error) {
  try {
    last_error() = error.what();
  } catch (const std::bad_alloc&) {
    last_error() = kOutOfMemory.what();  // short enough to need none
  }
  return error.code();
}

template <class Body>
DDL_Result guard(const Body& body) noexcept {
  try {
    body();
    return DDL_SUCCESS;
  } catch (...) {
    DDL_Result result = DDL_ERROR_SYSTEM;
    with_current_error([&](const Error& error) { result = keep_error(error); });
    return result;
  }
}

}  // namespace ddl
