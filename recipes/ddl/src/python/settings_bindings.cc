// The library's element types and settings, for Python: nothing of them is written down twice.
#include "settings_bindings.h"

#include <ddl/ddl.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/settings.h"

namespace {

// Name, number and bytes of each.
std::vector<std::tuple<std::string, int, int>> element_types() {
  return {
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl) {name, type, nbytes},
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
  };
}

}  // namespace

void bind_settings(nanobind::module_& m) {
  m.def("element_types", element_types);
  m.def("timeout_of", ddl::timeout_of, nanobind::arg("options"), nanobind::arg("variable").none());
}
