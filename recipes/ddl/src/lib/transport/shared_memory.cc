#include "transport/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"

namespace ddl {

SharedMemory::SharedMemory(int fd, std::size_t bytes) : fd_(fd), bytes_(bytes) {
  void* address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    close(fd);
    fail(DDL_ERROR_SYSTEM, "cannot map ", bytes, " bytes of shared memory: ", strerror(error));
  }
  data_ = static_cast<std::byte*>(address);
}

SharedMemory SharedMemory::create(std::size_t bytes) {
  // It has no name that could stay: it goes with its last process, however that ends.
  const int fd = memfd_create("ddl", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const int error = errno;
    if (fd >= 0) close(fd);
    fail(DDL_ERROR_SYSTEM, "cannot create ", bytes, " bytes of shared memory: ", strerror(error));
  }
  return SharedMemory(fd, bytes);
}

SharedMemory SharedMemory::open(pid_t pid, int fd, std::size_t bytes) {
  const std::string path = concat("/proc/", pid, "/fd/", fd);
  const int own_fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (own_fd < 0) {
    fail(DDL_ERROR_SYSTEM, "cannot open the shared memory ", path, ": ", strerror(errno),
         "; ranks on one host must run as one user and see each other's processes");
  }
  return SharedMemory(own_fd, bytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  // The other one's destructor frees what was ours.
  std::swap(fd_, other.fd_);
  std::swap(bytes_, other.bytes_);
  std::swap(data_, other.data_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
  close_file();
}

void SharedMemory::close_file() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

}  // namespace ddl
