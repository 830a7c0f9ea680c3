// The CPU variant: there are no GPUs.
#include "base/error.h"
#include "comm/device_interface.h"

namespace ddl {

bool is_on_device(const void*) { return false; }

const char* cuda_library() { return ""; }

void check_device_present(const char* function) {
  fail(DDL_ERROR_ARGUMENT, function,
       ": this libddl was built without CUDA; install the CUDA variant of the package ddl");
}

void check_not_captured(const char*, const void*) {}

std::unique_ptr<Device> make_device(Comm&) { return nullptr; }

}  // namespace ddl
