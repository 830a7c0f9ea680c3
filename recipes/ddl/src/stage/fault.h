// The error of ddl-stage.
#pragma once

#include <stdexcept>

namespace ddl::stage {

// What is wrong on this host: a sentence for the user.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ddl::stage
