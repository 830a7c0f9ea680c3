// The one exception of the library. The C interface turns it into a DDL_Result and a sentence.
#pragma once

#include <ddl/ddl.h>

#include <sstream>
#include <stdexcept>
#include <string>

namespace ddl {

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
