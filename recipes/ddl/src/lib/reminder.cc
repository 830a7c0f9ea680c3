#include "reminder.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "peer.h"

namespace ddl {

Reminder::Reminder(const char* call) : thread_([this, call] { wait(call); }) {}

Reminder::~Reminder() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  thread_.join();
}

void Reminder::wait(const char* call) {
  const std::chrono::duration<double> timeout(g_timeout_seconds.load());
  std::unique_lock<std::mutex> lock(mutex_);
  if (over_.wait_for(lock, timeout, [this] { return is_over_; })) return;
  char host[256] = "";
  gethostname(host, sizeof(host) - 1);
  std::fprintf(stderr,
               "[ddl] process %d on host %s has been in %s for %g s: some rank has not come there, "
               "or cannot be reached\n",
               static_cast<int>(getpid()), host, call, timeout.count());
}

}  // namespace ddl
