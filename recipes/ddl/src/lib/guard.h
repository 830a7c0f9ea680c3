// Stops exceptions: no C++ exception crosses the C interface.
#pragma once

#include <ddl/ddl.h>

#include <exception>
#include <new>
#include <string>

#include "error.h"

namespace ddl {

// This thread's latest error.
inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

template <class Body>
DDL_Result guard(const Body& body) noexcept {
  try {
    body();
    return DDL_SUCCESS;
  } catch (const Error& error) {
    last_error() = error.what();
    return error.code();
  } catch (const std::bad_alloc&) {
    last_error() = "out of memory";
    return DDL_ERROR_SYSTEM;
  } catch (const std::exception& error) {
    last_error() = error.what();
    return DDL_ERROR_SYSTEM;
  }
}

}  // namespace ddl
