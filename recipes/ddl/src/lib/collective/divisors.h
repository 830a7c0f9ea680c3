// The divisors of an average. 16-bit floats are summed in float32 and rounded once per level:
// inside a socket, inside the host, and at every level of the tree. Their averages are divided by a
// power of two on the first level, so that no sum overflows, and by the rest on the last.
#pragma once

#include "base/arguments.h"

namespace ddl {

struct Divisors {
  Divisors(int ranks, const Arguments& args);
  double first = 1.0;
  double last = 1.0;
};

}  // namespace ddl
