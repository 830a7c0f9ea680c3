// Python calls this at the interpreter's exit, when ddl still runs.
#include <ddl/ddl.h>

#include <cstdlib>

#include "background_thread.h"

namespace {

// Long enough for ranks that end together. A longer wait would delay the error that the others get
// from ddl when they are in one of its own collectives.
constexpr double kTogether = 1;  // seconds
// The background thread may be the last to use ddl, and so the one to end MPI.
constexpr double kAtTheLatest = 5;

}  // namespace

extern "C" __attribute__((visibility("default"))) void ddl_tensorflow_shutdown() {
  if (ddl_initialized() == 0) return;
  ddl_tensorflow::BackgroundThread& thread = ddl_tensorflow::BackgroundThread::instance();
  thread.shut_down();
  thread.wait_shut_down(kTogether);
  std::atexit([] { ddl_tensorflow::BackgroundThread::instance().wait_shut_down(kAtTheLatest); });
}
