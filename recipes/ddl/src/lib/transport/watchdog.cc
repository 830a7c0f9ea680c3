#include "transport/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "base/timeout.h"
#include "base/wait.h"

namespace ddl {

Watchdog::Watchdog(const char* call) {
  try {
    thread_ = std::thread([this, call] { wait(call); });
  } catch (const std::system_error&) {
    // No thread, no watchdog: the call itself matters more.
  }
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::wait(const char* call) {
  const double timeout = g_timeout_seconds;
  std::unique_lock<std::mutex> lock(mutex_);
  for (Waited waited; waited.seconds() < timeout;) {
    // In steps, of which Waited counts a second at most: a suspended job has not waited.
    const std::chrono::duration<double> look(std::min(timeout, 0.5));
    if (over_.wait_for(lock, look, [this] { return is_over_; })) return;
  }
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::fprintf(stderr,
               "[ddl] process %d on host %s has been in %s for %g s: some rank has not come there, "
               "or cannot be reached\n",
               static_cast<int>(getpid()), host, call, timeout);
}

}  // namespace ddl
