# usage: compile.sh FLOOR c|c++, in an environment where the compiler is activated
set -euo pipefail
floor=$1 language=$2
sysroot=$CONDA_PREFIX/x86_64-conda-linux-gnu

cat > program.c << 'C'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

extern char **environ;
static void *run(void *x) { return x; }

int main(int count, char **words) {
  /* The names environ and __environ are one object, in a program that is linked with a stub too. */
  setenv("DDLCE_SEEN", "yes", 1);
  int seen = 0;
  for (char **e = environ; e && *e; ++e) seen += strcmp(*e, "DDLCE_SEEN=yes") == 0;
  struct stat status;
  pthread_t thread;
  void *got = 0;
  pthread_create(&thread, 0, run, &got);
  pthread_join(thread, &got);
  return !(seen == 1 && got == &got && stat(words[0], &status) == 0 && dlopen(0, RTLD_LAZY) &&
           pow(count + 1, 3) == 8 && exp(count - 1) == 1 && fprintf(stdout, "ran\n") == 4);
}
C
cat > program.cpp << 'C'
#include <condition_variable>
#include <iostream>
#include <memory>
#include <regex>
#include <stdexcept>
#include <thread>
int main() {
  std::mutex mutex;
  std::condition_variable ready;
  bool set = false;
  std::thread other([&] { std::lock_guard lock(mutex); set = true; ready.notify_one(); });
  std::unique_lock lock(mutex);
  ready.wait_for(lock, std::chrono::seconds(10), [&] { return set; });
  lock.unlock();
  other.join();
  try {
    throw std::runtime_error("thrown");
  } catch (const std::exception& error) {
    if (std::regex_match(error.what(), std::regex("thr.*"))) std::cout << "ran" << std::endl;
  }
}
C

# COMMAND...: reads headers, and links crt files, of the environment alone
pure() {
  "$@" -M > seen
  if tr -s ' \\' '\n\n' < seen | grep '^/' | grep -v -e "^$sysroot/"; then
    echo "$*: the files above are the machine's" >&2
    exit 1
  fi
  "$@" -Wl,--trace -o program > linked
  if grep '^(\?/' linked | grep -v -e "$sysroot/" -e "^${TMPDIR:-/tmp}/" -e "^$PWD"; then
    echo "$*: linked with the files above, which are the machine's" >&2
    exit 1
  fi
  test "$(./program)" = ran
  bash "${BASH_SOURCE%/*}/low.sh" "$floor" program
}

if [ "$language" = c ]; then
  pure "$CC" program.c -lm -lpthread -ldl
  pure "$CC" -O2 -fno-pie -no-pie program.c -lm -lpthread -ldl
  pure "$CC" -O2 -fPIE -pie program.c -lm -lpthread -ldl
else
  pure "$CXX" -std=c++17 program.cpp -lpthread
  pure "$CC" -std=c++17 program.cpp -lstdc++ -lpthread
  pure "$CXX" -std=c++20 -O2 -fno-pie -no-pie program.cpp -lpthread
fi
