#include "timeline/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "base/error.h"

namespace ddl {
namespace {

constexpr mode_t kMode = 0600;  // whatever the umask: it tells what a user's job does

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  fail(DDL_ERROR_ARGUMENT, "cannot write the timeline ", path,
       " (-timeline or DDL_TIMELINE): ", why);
}

}  // namespace

TraceFile::TraceFile(const std::string& path) : path_(path), unfinished_(path + ".tmp") {
  struct stat there {};
  if (lstat(path_.c_str(), &there) == 0 && !S_ISREG(there.st_mode)) {
    refuse(path_, S_ISDIR(there.st_mode) ? "it is a folder; name a file"
                                         : "it is there, and no ordinary file; name another one");
  }
  while (!lock()) continue;
}

// False where another process has put its own file in place meanwhile.
bool TraceFile::lock() {
  const int flags = O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK;
  const int file = open(unfinished_.c_str(), flags, kMode);
  if (file < 0) refuse(path_, std::strerror(errno));
  struct stat opened {};
  struct stat named {};
  fstat(file, &opened);
  // In a folder such as /tmp, another user may have made it, or linked it to a file of ours.
  const bool is_ours =
      S_ISREG(opened.st_mode) && opened.st_uid == geteuid() && opened.st_nlink <= 1;
  if (!is_ours) {
    close(file);
    refuse(path_, unfinished_ + " is there, and not this job's; remove it, or name another file");
  }
  // Some file systems of clusters have no locks: then the last job's file stays, as a whole.
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    close(file);
    refuse(path_, "another job is writing it; name another file");
  }
  const bool is_named = lstat(unfinished_.c_str(), &named) == 0 && named.st_ino == opened.st_ino &&
                        named.st_dev == opened.st_dev;
  // What a killed job has left in it goes.
  if (!is_named || fchmod(file, kMode) != 0 || ftruncate(file, 0) != 0) {
    const int error = errno;
    close(file);
    if (!is_named) return false;
    refuse(path_, std::strerror(error));
  }
  file_ = file;
  return true;
}

TraceFile::~TraceFile() {
  if (file_ < 0) return;
  unlink(unfinished_.c_str());
  close(file_);
}

void TraceFile::give_up() const {
  fail(DDL_ERROR_SYSTEM, "cannot write the timeline ", path_, ": ", std::strerror(errno));
}

void TraceFile::write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) give_up();
    done += static_cast<std::size_t>(n);
  }
}

void TraceFile::finish() {
  if (fsync(file_) != 0) give_up();
  if (rename(unfinished_.c_str(), path_.c_str()) != 0) give_up();
  close(file_);
  file_ = -1;
}

void TraceFile::remove_parts() const {
  namespace fs = std::filesystem;
  const fs::path path(path_);
  const std::string begin = path.filename().string() + ".rank-";
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  std::error_code error;  // a part that cannot be removed harms nobody
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const bool is_part = name.rfind(begin, 0) == 0 && name.size() > begin.size() &&
                         name.find_first_not_of("0123456789", begin.size()) == std::string::npos;
    std::error_code ignored;
    if (is_part) fs::remove(entry->path(), ignored);
  }
}

}  // namespace ddl
