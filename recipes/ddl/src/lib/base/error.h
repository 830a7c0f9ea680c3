// The library's own exception. The C interface turns it, and all others, into a DDL_Result and a
// sentence.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <new>
#include <sstream>
#include <stdexcept>
#include <string>

namespace ddl {

// Bytes of an error that a rank tells the others; the rest is cut off.
inline constexpr std::size_t kMaxErrorText = 1024;

class Error : public std::runtime_error {
 public:
  Error(DDL_Result code, const std::string& message) : std::runtime_error(message), code_(code) {}
  DDL_Result code() const { return code_; }

 private:
  DDL_Result code_;
};

// The error of another rank, which told it when it gave up: its words say who and why.
class Relayed : public Error {
 public:
  Relayed(DDL_Result code, const std::string& message) : Error(code, message) {}
};

// Made in time: it takes no memory when there is none.
inline const Error kOutOfMemory(DDL_ERROR_SYSTEM, "out of memory");

// Calls use(error) for the exception that is being handled.
template <class Use>
void with_current_error(const Use& use) {
  try {
    throw;
  } catch (const Error& error) {
    use(error);
  } catch (const std::bad_alloc&) {
    use(kOutOfMemory);
  } catch (const std::exception& error) {
    use(Error(DDL_ERROR_SYSTEM, error.what()));
  }
}

template <class... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

template <class... Parts>
[[noreturn]] void fail(DDL_Result code, const Parts&... parts) {
  throw Error(code, concat(parts...));
}

}  // namespace ddl
