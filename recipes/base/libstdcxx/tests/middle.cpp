#include "library.h"

struct Guard {
  int& ended;
  ~Guard() { ++ended; }
};

std::unique_ptr<Shape> make_through(double radius, int& ended) {
  Guard guard{ended};
  return make(radius);
}
