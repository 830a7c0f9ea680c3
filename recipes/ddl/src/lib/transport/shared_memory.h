// Memory that processes of one host share.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace ddl {

// A mapping of an anonymous memory file. It has no name in the file system, so nothing is left
// behind however the job ends, and a container's small /dev/shm does not limit it. Pages are
// allocated by whoever touches them first, on that process's NUMA node.
class SharedMemory {
 public:
  SharedMemory() = default;  // no memory
  // Both throw DDL_ERROR_SYSTEM.
  static SharedMemory create(std::size_t bytes);
  // Maps the memory that process `pid` of the same user created and holds as `fd`.
  static SharedMemory open(pid_t pid, int fd, std::size_t bytes);

  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&& other) noexcept;
  ~SharedMemory();

  std::byte* data() const { return data_; }
  int fd() const { return fd_; }
  // The mapping stays; the file lives until the last process unmaps it.
  void close_file();

 private:
  SharedMemory(int fd, std::size_t bytes);
  int fd_ = -1;
  std::size_t bytes_ = 0;
  std::byte* data_ = nullptr;
};

}  // namespace ddl
