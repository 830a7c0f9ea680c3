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
