#pragma once

#include <nanobind/nanobind.h>

// Adds the schedules to the module: Tree, Wire, Pipeline, Prediction, predict.
void bind_schedules(nanobind::module_& m);
