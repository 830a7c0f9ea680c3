/* What Debian's objects take of a glibc that is younger than the floor. Within the library alone. */
#include <stdlib.h>
#include <unistd.h>

/* 2.32: whether the process has one thread. "No" is right always, and costs an atomic operation. */
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;

/* 2.36: what std::random_device takes by default. */
__attribute__((visibility("hidden"))) unsigned arc4random(void) {
  unsigned value;
  if (getentropy(&value, sizeof value) != 0) abort();
  return value;
}
