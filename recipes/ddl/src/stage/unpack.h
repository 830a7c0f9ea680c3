// Unpacks an image that comes in pieces: hashed, decompressed by zstd, given to the host's tar.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

struct ZSTD_DCtx_s;
struct evp_md_ctx_st;

namespace ddl::stage {

class Unpacker {
 public:
  // Starts tar in `folder`, which is there and empty. Throws Fault.
  explicit Unpacker(std::string folder);
  ~Unpacker();
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;

  // The next piece; throws Fault when the image is damaged, or the disk does not take it.
  void feed(const char* data, std::size_t size);
  // Waits for tar; throws Fault unless the sha256 of all pieces is this one, and all is unpacked.
  void finish(const std::string& sha256);

 private:
  void write_all(const char* data, std::size_t size);
  [[noreturn]] void fail_as_tar_says();

  std::string folder_;
  ZSTD_DCtx_s* zstd_;
  evp_md_ctx_st* digest_;
  std::vector<char> plain_;
  bool frame_is_over_ = false;
  pid_t tar_ = -1;
  int input_ = -1;     // tar's
  int messages_ = -1;  // a file without a name that tar writes its errors to
};

}  // namespace ddl::stage
