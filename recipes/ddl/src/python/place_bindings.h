#pragma once

#include <nanobind/nanobind.h>

// Adds own_place and tree_of_places to the module; the Tree is schedule_bindings.cc's.
void bind_places(nanobind::module_& m);
