// The Python face: ddl_torch._backend.
#include <torch/csrc/utils/pybind.h>

#include <numeric>

#include "backend.h"
#include "error.h"

namespace ddl_torch {
namespace {

namespace py = pybind11;

// The group's ranks as ddl counts them; refuses a job that torch and ddl see differently.
std::vector<int> world_ranks(const c10d::DistributedBackendOptions& options) {
  std::vector<int> ranks(options.global_ranks_in_group.begin(),
                         options.global_ranks_in_group.end());
  int rank = 0;
  int size = 0;
  check(ddl_rank(&rank));
  check(ddl_size(&size));
  if (ranks.empty()) {  // the default group
    ranks.resize(options.group_size);
    std::iota(ranks.begin(), ranks.end(), 0);
    if (options.group_size != size) {
      refuse(
          c10::str("init_process_group: the world size is ", options.group_size,
                   ", but MPI started ", size, size == 1 ? " rank" : " ranks",
                   "; start the program with one launcher, as ddlrun, and leave WORLD_SIZE to it"));
    }
  }
  if (ranks.at(options.group_rank) != rank) {
    refuse(c10::str("this process is rank ", ranks.at(options.group_rank), " for torch, but rank ",
                    rank, " for MPI; leave RANK and rank= to the launcher"));
  }
  return ranks;
}

c10::intrusive_ptr<c10d::Backend> create(const c10d::DistributedBackendOptions& options) {
  const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.timeout);
  return c10::make_intrusive<DdlBackend>(options.group_rank, world_ranks(options), options.group_id,
                                         timeout);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def("create", &create, py::arg("options"), py::call_guard<py::gil_scoped_release>(),
             "Makes the backend of one process group; collective over its ranks. Needs ddl.init.");
  module.def(
      "leave_all",
      [](double seconds) {
        return leave_all(std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000)));
      },
      py::arg("seconds"), py::call_guard<py::gil_scoped_release>(),
      "Lets all groups that were not destroyed leave; what went wrong, or ''.");
}

}  // namespace ddl_torch
