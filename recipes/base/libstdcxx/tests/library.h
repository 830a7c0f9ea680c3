#pragma once
#include <memory>
#include <string>

struct Shape {
  virtual ~Shape();
  virtual double area() const = 0;
};

struct Circle : Shape {
  explicit Circle(double r);
  double area() const override;
  double radius;
};

std::unique_ptr<Shape> make(double radius);
std::unique_ptr<Shape> make_through(double radius, int& ended);
