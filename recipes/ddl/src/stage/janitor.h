// A second process that cleans up after a killed one.
//
// A batch system ends a job by SIGKILL, after which nobody can remove half of an image. The janitor
// is outside of the job's process group, sleeps, and does so when the first process is gone. It
// shares the open lock file, so that no other process begins in the meantime.
#pragma once

#include <string>

namespace ddl::stage {

class Janitor {
 public:
  // Starts the process; before MPI, which does not like forks.
  // `lock`: the file descriptor that stays open in it; `partial`: what it removes.
  Janitor(int lock, const std::string& partial);
  ~Janitor();
  Janitor(const Janitor&) = delete;
  Janitor& operator=(const Janitor&) = delete;

  // From now on there is something to remove, or no longer.
  void arm();
  void disarm();

 private:
  void tell(char word);

  int pipe_ = -1;
};

}  // namespace ddl::stage
