// Where hosts stand, for Python: what `ddlrun -show_topology` asks every host, and makes of it.
#include "place_bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "topology/place.h"

void bind_places(nanobind::module_& m) {
  m.def("own_place", ddl::own_place);
  m.def("tree_of_places", ddl::tree_of_places);
}
