// The places of hosts, for Python: `ddlrun -show_topology` asks every host for its own, and makes a
// tree of them.
#include "place_bindings.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "topology/place.h"

void bind_places(nanobind::module_& m) {
  m.def("own_place", ddl::own_place);
  m.def("tree_of_places", ddl::tree_of_places);
}
