#include "library.h"

#include <stdexcept>

Shape::~Shape() = default;
Circle::Circle(double r) : radius(r) {}
double Circle::area() const { return 3 * radius * radius; }

std::unique_ptr<Shape> make(double radius) {
  if (radius < 0) throw std::out_of_range("radius " + std::to_string(radius));
  return std::make_unique<Circle>(radius);
}
