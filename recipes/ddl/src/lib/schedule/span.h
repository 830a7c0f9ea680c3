// A part of the data.
#pragma once

#include <cstddef>
#include <vector>

namespace ddl {

// Elements [begin, end) of the data.
struct Span {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t count() const { return end - begin; }
};

// A part of the data and its host. A list of pieces is in order, without gaps.
struct Piece {
  Span span;
  int host;
};
using Pieces = std::vector<Piece>;

}  // namespace ddl
