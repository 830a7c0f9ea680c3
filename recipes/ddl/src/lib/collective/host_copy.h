// Gives a collective that knows host memory only the program's buffer itself, or a copy in host
// memory if the buffer is on a GPU.
#pragma once

#include <cstddef>
#include <memory>

#include "comm/comm.h"

namespace ddl {

class HostInput {
 public:
  HostInput(Comm& comm, const void* data, std::size_t nbytes) : data_(data) {
    if (nbytes == 0 || !is_on_device(data)) return;
    copy_.reset(new std::byte[nbytes]);  // not initialised
    comm.device().to_host(copy_.get(), data, nbytes);
    data_ = copy_.get();
  }
  const void* data() const { return data_; }

 private:
  const void* data_;
  std::unique_ptr<std::byte[]> copy_;
};

class HostOutput {
 public:
  HostOutput(Comm& comm, void* data, std::size_t nbytes) : comm_(comm), data_(data) {
    if (nbytes > 0 && is_on_device(data)) copy_.reset(new std::byte[nbytes]);
  }
  void* data() const { return copy_ ? copy_.get() : data_; }

  // Puts the bytes from `begin` on where they belong.
  void deliver(std::size_t begin, std::size_t nbytes) {
    if (!copy_ || nbytes == 0) return;
    comm_.device().to_device(static_cast<std::byte*>(data_) + begin, copy_.get() + begin, nbytes);
  }

 private:
  Comm& comm_;
  void* data_;
  std::unique_ptr<std::byte[]> copy_;
};

}  // namespace ddl
