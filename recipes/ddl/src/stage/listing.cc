#include "listing.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>

#include "fault.h"

namespace ddl::stage {
namespace fs = std::filesystem;
namespace {

constexpr double fresh = 3600;  // seconds
constexpr char last[] = "end";

std::string why() { return std::strerror(errno); }

// An open folder, or -1; closed at the end of the block.
class Folder {
 public:
  explicit Folder(const std::string& path)
      : file_(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)) {}
  ~Folder() {
    if (file_ >= 0) close(file_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  int file() const { return file_; }

 private:
  int file_;
};

// What is told of an entry: of a folder only that it is one, since its size and time change.
std::string about(const struct stat& status) {
  if (S_ISDIR(status.st_mode)) return "folder";
  return (S_ISLNK(status.st_mode) ? "link " : "file ") + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

// Calls `look` with what is told of each entry, and its path, until it says false. Whether all have
// been looked at, and there were some.
bool for_each(const std::string& file,
              const std::function<bool(const std::string&, const std::string&)>& look) {
  std::ifstream list(file, std::ios::binary);
  std::string told, path;
  bool any = false;
  while (std::getline(list, told, '\0')) {
    if (told == last) return any;
    if (!std::getline(list, path, '\0') || !look(told, path)) return false;
    any = true;
  }
  return false;  // not there, or cut off
}

}  // namespace

void write_listing(const std::string& folder, const std::string& file) {
  unlink(file.c_str());  // it may be a link
  std::ofstream list(file, std::ios::binary);
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status;
    if (lstat(entry->path().c_str(), &status)) throw Fault(entry->path().string() + ": " + why());
    list << about(status) << '\0' << entry->path().string().substr(folder.size() + 1) << '\0';
  }
  if (error) throw Fault("cannot read " + folder + ": " + error.message());
  list << last << '\0';  // without it, the list is not whole
  list.close();
  if (!list) throw Fault("cannot write " + file + ": " + why());
}

bool is_whole(const std::string& folder, const std::string& file) {
  const Folder open(folder);
  return open.file() >= 0 && for_each(file, [&](const std::string& told, const std::string& path) {
           struct stat status;
           return !fstatat(open.file(), path.c_str(), &status, AT_SYMLINK_NOFOLLOW) &&
                  about(status) == told;
         });
}

void mark_used(const std::string& folder, const std::string& file) {
  struct stat status;
  if (!stat(file.c_str(), &status)) {
    const double age = std::difftime(std::time(nullptr), status.st_mtime);
    if (age >= 0 && age < fresh) return;
  }
  const Folder open(folder);
  if (open.file() < 0) return;
  const timespec now_alone[2] = {{0, UTIME_NOW}, {0, UTIME_OMIT}};
  futimens(open.file(), now_alone);
  for_each(file, [&](const std::string&, const std::string& path) {
    utimensat(open.file(), path.c_str(), now_alone, AT_SYMLINK_NOFOLLOW);
    return true;
  });
  utimensat(AT_FDCWD, file.c_str(), nullptr, 0);
}

}  // namespace ddl::stage
