#pragma once

#include <nanobind/nanobind.h>

// Adds the schedules to the module: Tree, Wire, Chunking, Prediction, predict.
void bind_schedules(nanobind::module_& m);
