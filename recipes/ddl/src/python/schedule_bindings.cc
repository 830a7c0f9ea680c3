// The schedules for Python: functions from a tree to the library's schedule on it. Nothing here
// needs MPI to run. Errors are ValueErrors with the library's own sentence.
#include "schedule_bindings.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/settings.h"
#include "schedule/choose.h"
#include "topology/file.h"

namespace nb = nanobind;

namespace {

using Names = std::vector<std::string>;

void collect_hosts(const ddl::Node& node, Names* names) {
  if (node.is_host()) names->push_back(node.name);
  for (const ddl::Node& child : node.children) collect_hosts(child, names);
}

// Without hosts: all of the file's.
ddl::Node parse_tree(const std::string& text, const std::string& source,
                     const std::optional<Names>& hosts) {
  const ddl::Node tree = ddl::parse_topology(text, source);
  Names all;
  collect_hosts(tree, &all);
  return ddl::assign_hosts(tree, hosts ? *hosts : all, source);
}

ddl::Node tree_of_sizes(const Names& hosts, const std::vector<int>& sizes) {
  std::size_t product = 1;
  for (const int size : sizes) product *= static_cast<std::size_t>(size);
  if (!sizes.empty() && product != hosts.size()) {
    ddl::fail(DDL_ERROR_ARGUMENT, "the sizes make ", product, " hosts, but there are ",
              hosts.size());
  }
  if (sizes.size() < 2) return ddl::flat_tree(hosts);  // as Topology does
  return ddl::tree_of_sizes(hosts, {sizes.begin(), sizes.end() - 1});
}

// The library's schedule for a message of this size with this word for -schedule, and its cost.
std::pair<std::string, ddl::Prediction> predict(const ddl::Node& tree, std::size_t nbytes,
                                                const std::string& word,
                                                const ddl::Chunking& chunking,
                                                const ddl::Wire& wire) {
  int schedule = ddl::parse_schedule(word);
  if (schedule == ddl::kAnySchedule)
    schedule = ddl::choose_schedule(tree, nbytes, chunking);  // as Comm does
  const ddl::Node limited = ddl::arrange(tree, schedule);
  return {ddl::name_of_schedule(schedule), ddl::predict_allreduce(limited, nbytes, chunking, wire)};
}

}  // namespace

void bind_schedules(nb::module_& m) {
  nb::register_exception_translator([](const std::exception_ptr& error, void*) {
    try {
      std::rethrow_exception(error);
    } catch (const ddl::Error& e) {
      PyErr_SetString(PyExc_ValueError, e.what());
    }
  });

  nb::class_<ddl::Wire>(m, "Wire")
      .def(nb::init<>())
      .def_rw("goodput", &ddl::Wire::goodput)
      .def_rw("bandwidth", &ddl::Wire::bandwidth)
      .def_rw("latency", &ddl::Wire::latency)
      .def_rw("overhead", &ddl::Wire::overhead)
      .def_rw("processing", &ddl::Wire::processing)
      .def_rw("within_host", &ddl::Wire::within_host);
  nb::class_<ddl::Node>(m, "Tree")
      .def_ro("name", &ddl::Node::name)
      .def_ro("children", &ddl::Node::children)
      .def_prop_ro("bandwidth", [](const ddl::Node& node) { return node.up.bandwidth; })
      .def_prop_ro("latency", [](const ddl::Node& node) { return node.up.latency; })
      .def_ro("sockets", &ddl::Node::sockets)
      .def("num_hosts", &ddl::Node::num_hosts)
      .def("is_measured", &ddl::is_measured)
      .def("usual_wire", &ddl::usual_wire);
  m.def("parse_tree", parse_tree, nb::arg("text"), nb::arg("source"), nb::arg("hosts").none());
  m.def("tree_of_sizes", tree_of_sizes);

  nb::class_<ddl::Chunking>(m, "Chunking")
      .def_rw("least_chunk", &ddl::Chunking::least_chunk)
      .def_rw("most_chunk", &ddl::Chunking::most_chunk)
      .def_rw("slots", &ddl::Chunking::slots)
      .def_rw("lanes", &ddl::Chunking::lanes);
  nb::class_<ddl::Prediction>(m, "Prediction")
      .def_ro("seconds", &ddl::Prediction::seconds)
      .def_ro("bound", &ddl::Prediction::bound)
      .def_ro("limit", &ddl::Prediction::limit)
      .def_ro("steps", &ddl::Prediction::steps)
      .def_ro("messages", &ddl::Prediction::messages)
      .def_ro("chunk", &ddl::Prediction::chunk)
      .def_ro("chunks", &ddl::Prediction::chunks);
  m.def("usual_chunking", ddl::usual_chunking);
  m.def("predict", predict);
}
