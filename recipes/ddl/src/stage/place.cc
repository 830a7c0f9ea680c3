#include "place.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <vector>

#include "listing.h"

namespace ddl::stage {
namespace fs = std::filesystem;
namespace {

// An image that was used so lately may be about to be: its ranks have not begun yet.
constexpr double youngest = 600;

std::string why() { return std::strerror(errno); }

// Refuses a folder on the way to the place whose owner, or everybody, could put another one there.
void check_above(const std::string& folder) {
  for (std::size_t end = folder.find('/', 1); end != std::string::npos;
       end = folder.find('/', end + 1)) {
    const std::string above = folder.substr(0, end);
    struct stat status;
    if (lstat(above.c_str(), &status)) throw Fault(above + ": " + why());
    if (status.st_uid != 0 && status.st_uid != geteuid()) {
      throw Fault(above + " belongs to user " + std::to_string(status.st_uid) +
                  ", who could replace what is in it");
    }
    if (S_ISLNK(status.st_mode)) continue;
    if ((status.st_mode & S_IWOTH) && !(status.st_mode & S_ISVTX)) {
      throw Fault("everybody may replace what is in " + above + " (no sticky bit)");
    }
  }
}

// Opens a folder of ours, or throws Fault: never by a link.
void check_own(const std::string& folder, bool tighten) {
  struct stat status;
  if (lstat(folder.c_str(), &status)) throw Fault(folder + ": " + why());
  if (S_ISLNK(status.st_mode)) throw Fault(folder + " is a link");
  if (!S_ISDIR(status.st_mode)) throw Fault(folder + " is no folder");
  if (status.st_uid != geteuid()) {
    throw Fault(folder + " belongs to user " + std::to_string(status.st_uid));
  }
  if (status.st_mode & (S_IWGRP | S_IWOTH)) {
    throw Fault("others may write " + folder);
  }
  if (tighten && (status.st_mode & 0077) && chmod(folder.c_str(), 0700)) {
    throw Fault(folder + ": " + why());
  }
}

int open_lock(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) throw Fault("cannot write " + path + ": " + why());
  return file;
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Whether a process that we can look at has a file of this folder in its memory, or is in it.
bool is_used(const std::string& folder) {
  const std::string inside = folder + "/";
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    if (entry.path().filename().string().find_first_not_of("0123456789") != std::string::npos) {
      continue;
    }
    const std::string here = fs::read_symlink(entry.path() / "cwd", ignored).string() + "/";
    if (here.rfind(inside, 0) == 0 ||
        content(entry.path() / "maps").find(inside) != std::string::npos) {
      return true;
    }
  }
  return false;
}

// Opens a folder and locks it, or -1. No program that honours such locks removes anything below.
int lock_folder(const std::string& folder, int how) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (file >= 0 && flock(file, how | LOCK_NB)) {
    close(file);
    return -1;
  }
  return file;
}

// Whether a rank's wrapper (rank.py) holds the image, perhaps one that /proc does not show.
bool is_held(const std::string& folder) {
  const int file = lock_folder(folder, LOCK_EX);
  if (file >= 0) close(file);
  return file < 0 && errno == EWOULDBLOCK;
}

// Renames a folder. One that is there already changes places with it where the file system can do
// so in one step: programs may run from it.
void put_there(const std::string& folder, const std::string& name) {
  if (!renameat2(AT_FDCWD, folder.c_str(), AT_FDCWD, name.c_str(), RENAME_EXCHANGE)) return;
  if (errno != ENOENT) remove_tree(name);
  if (rename(folder.c_str(), name.c_str())) throw Fault("cannot make " + name + ": " + why());
}

double age(const struct stat& status) { return std::difftime(std::time(nullptr), status.st_mtime); }

}  // namespace

Place::Place(std::string folder, std::string name)
    : folder_(std::move(folder)), name_(std::move(name)) {
  check_above(folder_);
  if (mkdir(folder_.c_str(), 0700) && errno != EEXIST) {
    throw Fault("cannot make " + folder_ + ": " + why());
  }
  check_own(folder_, true);
  struct statvfs disk;
  if (statvfs(folder_.c_str(), &disk)) throw Fault(folder_ + ": " + why());
  if (disk.f_flag & ST_NOEXEC) {
    throw Fault(folder_ + " is on a file system that is mounted noexec: no program runs from it");
  }
  lock_ = open_lock(prefix() + ".lock");
  kept_ = lock_folder(folder_, LOCK_SH);
}

Place::~Place() {
  for (const int file : {lock_, kept_}) {
    if (file >= 0) close(file);
  }
}

State Place::look() {
  const bool locked = !flock(lock_, LOCK_EX | LOCK_NB);
  if (!locked && errno != EWOULDBLOCK) {
    throw Fault("the file system of " + folder_ + " has no file locks: " + why());
  }
  struct stat status;
  const bool is_there = !lstat(prefix().c_str(), &status);
  if (is_there) check_own(prefix(), false);
  if (!locked) return State::busy;  // it is made, or removed
  if (!is_there || !(is_checked_ || is_whole(prefix(), listing()))) return State::need;
  is_checked_ = true;
  mark_used(prefix(), listing());
  futimens(lock_, nullptr);
  unlock();
  return State::have;
}

void Place::prepare(std::uint64_t bytes, std::uint64_t files) {
  abandon();
  struct statvfs disk;
  if (statvfs(folder_.c_str(), &disk)) throw Fault(folder_ + ": " + why());
  const std::uint64_t space = std::uint64_t(disk.f_bavail) * disk.f_frsize;
  const auto megabytes = [](std::uint64_t size) { return std::to_string(size / 1000000) + " MB"; };
  if (space < bytes) {
    throw Fault(folder_ + " has " + megabytes(space) + " free, and the image needs " +
                megabytes(bytes));
  }
  if (disk.f_files && disk.f_favail < files) {
    throw Fault(folder_ + " has space for " + std::to_string(disk.f_favail) +
                " more files, and the image has " + std::to_string(files));
  }
  if (mkdir(partial().c_str(), 0700)) throw Fault("cannot make " + partial() + ": " + why());
}

void Place::complete() {
  write_listing(partial(), listing());
  if (chmod(partial().c_str(), 0755)) throw Fault(partial() + ": " + why());
  put_there(partial(), prefix());
  is_checked_ = true;
  futimens(lock_, nullptr);
  abandon();
}

void Place::abandon() { remove_tree(partial()); }

void Place::unlock() { flock(lock_, LOCK_UN); }

int Place::evict(double seconds) const {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_, ignored)) {
    const std::string file = entry.path().filename().string();
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".lock" && name != name_ && name[0] != '.')
      names.push_back(name);
  }
  int removed = 0;
  for (const std::string& name : names) {
    const Place other(folder_, name);
    struct stat status;
    if (access(other.prefix().c_str(), F_OK) && access(other.partial().c_str(), F_OK)) continue;
    if (flock(other.lock_, LOCK_EX | LOCK_NB) || fstat(other.lock_, &status) ||
        age(status) < std::max(seconds, youngest) || is_held(other.prefix()) ||
        is_used(other.prefix())) {
      continue;
    }
    // The lock file stays: another process may have it open, and wait for the lock.
    remove_tree(other.partial());  // what a killed job left
    if (!rename(other.prefix().c_str(), other.partial().c_str())) ++removed;
    unlink(other.listing().c_str());
    remove_tree(other.partial());
  }
  return removed;
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) throw Fault("cannot remove " + path + ": " + error.message());
}

}  // namespace ddl::stage
