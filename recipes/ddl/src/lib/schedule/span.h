// A part of the data.
#pragma once

#include <cstddef>

namespace ddl {

// Elements [begin, end) of the data.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

}  // namespace ddl
