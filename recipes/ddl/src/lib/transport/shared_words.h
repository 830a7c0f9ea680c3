// The words that ranks of one host leave for each other in shared memory, without a lock. The
// memory is zero at first. README.md says why each is right ("Without locks").
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/call.h"
#include "base/error.h"
#include "transport/process.h"

namespace ddl {

// What a rank brings to a call: the call, and its data where they are tiny. One cache line, so that
// a rank which waits for a call and reads its data fetches no other. Two of them, of the calls that
// are even and odd, take turns: a rank writes the second next call when all have come to the next
// one, and so have read this.
class alignas(64) SharedMail {
 public:
  static constexpr std::size_t kTinyBytes = 24;

  // The data are written before. `arrived` is the rank's counter at this call.
  void write(const Call& call, std::uint32_t arrived) {
    call_ = call;
    arrived_.store(arrived, std::memory_order_release);
  }
  // Whether the mail is the one of this counter: then it can be read.
  bool is_of(std::uint32_t arrived) const {
    return arrived_.load(std::memory_order_acquire) == arrived;
  }
  const Call& call() const { return call_; }
  std::byte* tiny() { return tiny_; }

 private:
  Call call_;
  std::byte tiny_[kTinyBytes];
  std::atomic<std::uint32_t> arrived_;
};

static_assert(sizeof(SharedMail) == 64, "a mail is one cache line");

// The process of a rank, written once. A rank that is still setting itself up has none.
class SharedProcess {
 public:
  void set(ProcessName process) { word_.store(process.word(), std::memory_order_release); }
  ProcessName get() const { return ProcessName(word_.load(std::memory_order_acquire)); }

 private:
  std::atomic<std::uint64_t> word_;
};

// Why a rank gave up: the first one's reason stays.
class SharedFailure {
 public:
  // Cuts the text short where need be.
  void set(std::int32_t code, const char* text) {
    std::uint32_t none = kNone;
    if (!state_.compare_exchange_strong(none, kBeingWritten, std::memory_order_acq_rel)) return;
    code_ = code;
    std::memcpy(text_, text, std::min(std::strlen(text), kMaxErrorText - 1));
    state_.store(kReadable, std::memory_order_release);
  }
  bool is_set() const { return state_.load(std::memory_order_acquire) == kReadable; }
  // Of one that is set.
  std::int32_t code() const { return code_; }
  const char* text() const { return text_; }

 private:
  enum : std::uint32_t { kNone, kBeingWritten, kReadable };

  std::atomic<std::uint32_t> state_;
  std::int32_t code_;
  char text_[kMaxErrorText];
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "these live in shared memory");

}  // namespace ddl
