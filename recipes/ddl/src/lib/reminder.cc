#include "reminder.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <system_error>

#include "peer.h"

namespace ddl {

Reminder::Reminder(const char* call) {
  try {
    thread_ = std::thread([this, call] { wait(call); });
  } catch (const std::system_error&) {
    // No thread, no reminder: the call itself matters more.
  }
}

Reminder::~Reminder() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Reminder::wait(const char* call) {
  constexpr double kMost = 1e8;  // the most that wait_for can count
  const std::chrono::duration<double> timeout(std::min(g_timeout_seconds.load(), kMost));
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
