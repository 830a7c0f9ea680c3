#include "janitor.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "place.h"

namespace ddl::stage {
namespace {

constexpr char armed = '+', disarmed = '-';

// The file descriptors that MPI's launcher waits for must not stay open here.
void close_all_but(int one, int other) {
  const long most = sysconf(_SC_OPEN_MAX);
  for (int file = 0; file < (most > 0 && most < 65536 ? most : 65536); ++file) {
    if (file != one && file != other) close(file);
  }
  for (int file = 0; file < 3; ++file) {
    if (file != one && file != other) open("/dev/null", O_RDWR);
  }
}

[[noreturn]] void clean(int pipe, int lock, const std::string& partial) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    signal(number, SIG_IGN);
  }
  setsid();
  close_all_but(pipe, lock);
  char word = disarmed, next;
  for (;;) {
    const ssize_t got = read(pipe, &next, 1);
    if (got == 1) word = next;
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  for (int attempt = 0; word == armed && attempt < 50; ++attempt) {  // tar may still end a file
    try {
      remove_tree(partial);
      if (access(partial.c_str(), F_OK)) break;
    } catch (const Fault&) {
    }
    usleep(20000);
  }
  _exit(0);
}

}  // namespace

Janitor::Janitor(int lock, const std::string& partial) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC)) throw Fault(std::string("no pipe: ") + std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) throw Fault(std::string("no second process: ") + std::strerror(errno));
  if (child == 0) {
    if (fork() == 0) clean(ends[0], lock, partial);  // nobody's child, so that nobody waits for it
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  close(ends[0]);
  pipe_ = ends[1];
}

Janitor::~Janitor() { close(pipe_); }

void Janitor::arm() { tell(armed); }

void Janitor::disarm() { tell(disarmed); }

void Janitor::tell(char word) {
  while (write(pipe_, &word, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace ddl::stage
