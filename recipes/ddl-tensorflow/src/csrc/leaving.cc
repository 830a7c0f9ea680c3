// What Python calls at the interpreter's exit, when ddl still runs.
#include <ddl/ddl.h>

#include <cstdlib>

#include "lane.h"

namespace {

// Long enough for ranks that end together; others are not kept from saying by ddl that they call
// something else.
constexpr double kTogether = 1;  // seconds
// The lane may be the last to use ddl, and so the one to end MPI.
constexpr double kAtTheLatest = 5;

}  // namespace

extern "C" __attribute__((visibility("default"))) void ddl_tensorflow_leave() {
  if (ddl_initialized() == 0) return;
  ddl_tensorflow::Lane& lane = ddl_tensorflow::Lane::instance();
  lane.leave();
  lane.wait_left(kTogether);
  std::atexit([] { ddl_tensorflow::Lane::instance().wait_left(kAtTheLatest); });
}
