#include "unpack.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zstd.h>

#include <cerrno>
#include <cstring>

#include "place.h"

namespace ddl::stage {
namespace {

const char* find_tar() {
  for (const char* path : {"/usr/bin/tar", "/bin/tar"}) {
    if (!access(path, X_OK)) return path;
  }
  throw Fault("there is no tar in /usr/bin or /bin");
}

std::string hex(const unsigned char* bytes, unsigned size) {
  std::string text;
  for (unsigned at = 0; at < size; ++at) {
    text += "0123456789abcdef"[bytes[at] >> 4];
    text += "0123456789abcdef"[bytes[at] & 15];
  }
  return text;
}

}  // namespace

Unpacker::Unpacker(std::string folder)
    : folder_(std::move(folder)),
      zstd_(ZSTD_createDCtx()),
      digest_(EVP_MD_CTX_new()),
      plain_(ZSTD_DStreamOutSize()) {
  OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr);  // one file less of a shared folder
  EVP_DigestInit_ex(digest_, EVP_sha256(), nullptr);
  const char* program = find_tar();
  int ends[2];
  messages_ = memfd_create("tar", MFD_CLOEXEC);
  if (messages_ < 0 || pipe2(ends, O_CLOEXEC)) {
    throw Fault(std::string("cannot start tar: ") + std::strerror(errno));
  }
  signal(SIGPIPE, SIG_IGN);
  fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[0], 0);
  posix_spawn_file_actions_adddup2(&actions, messages_, 1);
  posix_spawn_file_actions_adddup2(&actions, messages_, 2);
  // -o: the files are ours, whoever runs this; -p: their modes do not depend on the umask.
  const char* words[] = {"tar", "-x", "-p", "-o", "-f", "-", "-C", folder_.c_str(), nullptr};
  const char* environment[] = {"LC_ALL=C", nullptr};
  const int error = posix_spawn(&tar_, program, &actions, nullptr, const_cast<char**>(words),
                                const_cast<char**>(environment));
  posix_spawn_file_actions_destroy(&actions);
  close(ends[0]);
  input_ = ends[1];
  if (error) {
    tar_ = -1;
    throw Fault(std::string("cannot start ") + program + ": " + std::strerror(error));
  }
}

Unpacker::~Unpacker() {
  if (input_ >= 0) close(input_);
  if (tar_ > 0) {
    kill(tar_, SIGKILL);
    waitpid(tar_, nullptr, 0);
  }
  if (messages_ >= 0) close(messages_);
  ZSTD_freeDCtx(zstd_);
  EVP_MD_CTX_free(digest_);
}

void Unpacker::feed(const char* data, std::size_t size) {
  EVP_DigestUpdate(digest_, data, size);
  ZSTD_inBuffer from{data, size, 0};
  bool is_full = true;  // more may come out although all is in
  while (from.pos < from.size || is_full) {
    ZSTD_outBuffer to{plain_.data(), plain_.size(), 0};
    const std::size_t left = ZSTD_decompressStream(zstd_, &to, &from);
    if (ZSTD_isError(left)) {
      throw Fault(std::string("the image is damaged: zstd: ") + ZSTD_getErrorName(left));
    }
    frame_is_over_ = left == 0;
    is_full = to.pos == to.size;
    write_all(plain_.data(), to.pos);
    if (frame_is_over_ && from.pos == from.size) break;
  }
}

void Unpacker::finish(const std::string& sha256) {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(digest_, bytes, &size);
  if (hex(bytes, size) != sha256 || !frame_is_over_) {
    throw Fault("the image is damaged: its sha256 is not " + sha256.substr(0, 16) + "...");
  }
  close(input_);
  input_ = -1;
  int status = 0;
  while (waitpid(tar_, &status, 0) < 0 && errno == EINTR) {
  }
  tar_ = -1;
  if (status) fail_as_tar_says();
}

void Unpacker::write_all(const char* data, std::size_t size) {
  while (size > 0) {
    const ssize_t done = write(input_, data, size);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_as_tar_says();
    data += done;
    size -= static_cast<std::size_t>(done);
  }
}

void Unpacker::fail_as_tar_says() {
  if (tar_ > 0) waitpid(tar_, nullptr, 0);  // it has ended: the pipe is broken
  tar_ = -1;
  char text[400];
  const ssize_t got = pread(messages_, text, sizeof text - 1, 0);
  std::string said(text, got > 0 ? static_cast<std::size_t>(got) : 0);
  while (!said.empty() && said.back() == '\n') said.pop_back();
  for (std::size_t at; (at = said.find('\n')) != std::string::npos;) said.replace(at, 1, "; ");
  struct statvfs disk;
  if (!statvfs(folder_.c_str(), &disk) && disk.f_bavail * disk.f_frsize < (1 << 20)) {
    said = "the disk is full; " + said;  // tar says so of some files only
  }
  throw Fault("cannot unpack in " + folder_ + ": " + said);
}

}  // namespace ddl::stage
