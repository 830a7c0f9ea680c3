// Copies by the instruction set of the source file that includes this; the same rules as for
// kernels_impl.h, which does.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "reduce/kernels.h"

namespace ddl {
namespace {

void copy(void* out, const void* in, std::size_t nbytes) { __builtin_memcpy(out, in, nbytes); }

#if defined(__AVX2__)
void copy_by_vectors(void* out, const void* in, std::size_t nbytes) {
  auto* to = static_cast<char*>(out);
  auto* from = static_cast<const char*>(in);
  std::size_t i = 0;
  for (; i + 128 <= nbytes; i += 128) {
    __m256i vectors[4];
    for (int k = 0; k < 4; ++k) {
      vectors[k] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32 * k));
    }
    for (int k = 0; k < 4; ++k) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i + 32 * k), vectors[k]);
    }
  }
  __builtin_memcpy(to + i, from + i, nbytes - i);
}
#endif

void copy_streaming(void* out, const void* in, std::size_t nbytes) {
#if defined(__AVX2__)
  auto* to = static_cast<char*>(out);
  auto* from = static_cast<const char*>(in);
  const std::size_t head = (-reinterpret_cast<std::uintptr_t>(to)) & 31u;
  if (nbytes < 1024 || head > nbytes) {
    __builtin_memcpy(to, from, nbytes);
    return;
  }
  __builtin_memcpy(to, from, head);
  std::size_t i = head;
  for (; i + 128 <= nbytes; i += 128) {
    for (std::size_t k = i; k < i + 128; k += 32) {
      _mm256_stream_si256(reinterpret_cast<__m256i*>(to + k),
                          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + k)));
    }
  }
  __builtin_memcpy(to + i, from + i, nbytes - i);
#else
  __builtin_memcpy(out, in, nbytes);
#endif
}

CopyFunction best_copy() {
#if defined(__AVX2__)
  if (__builtin_cpu_is("amd")) return copy_by_vectors;
#endif
  return copy;
}

}  // namespace
}  // namespace ddl
