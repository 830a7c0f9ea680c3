// The kernels' loops, plain enough for the compiler to vectorise. Included by one source file per
// instruction set; everything has internal linkage and no inline library function is used, so that
// the linker cannot take one file's code for another's.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "reduce/kernels.h"

namespace ddl {
namespace {

inline std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float float_of(std::uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t rest = half & 0x7fffu;
  const std::uint32_t normal = (rest << 13) + (112u << 23);
  const std::uint32_t special = (rest << 13) | 0x7f800000u;
  // 2^-24 is the unit of subnormals. The product is a normal float: safe under flush-to-zero.
  const std::uint32_t subnormal = bits_of(static_cast<float>(static_cast<int>(rest)) * 0x1p-24f);
  const std::uint32_t quiet = rest > 0x7c00u ? 0x00400000u : 0u;
  const std::uint32_t magnitude =
      rest >= 0x7c00u ? (special | quiet) : (rest < 0x0400u ? subnormal : normal);
  return float_of(sign | magnitude);
}

inline std::uint16_t float_to_half(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  const std::uint32_t nan = 0x7e00u | ((rest >> 13) & 0x1ffu);
  // The spacing of floats in [0.5, 1) is the unit of half's subnormals: the sum rounds for us.
  const std::uint32_t subnormal = bits_of(float_of(rest) + 0.5f) - 0x3f000000u;
  const std::uint32_t normal = (rest + 0xfffu + ((rest >> 13) & 1u) - (112u << 23)) >> 13;
  std::uint32_t magnitude = rest < 0x38800000u ? subnormal : normal;
  magnitude = rest >= 0x477ff000u ? 0x7c00u : magnitude;
  magnitude = rest > 0x7f800000u ? nan : magnitude;
  return static_cast<std::uint16_t>(sign | magnitude);
}

inline float bfloat_to_float(std::uint16_t value) {
  return float_of(static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// An element type: how it is stored, what it is accumulated in, and the way between in bulk.
template <class T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  static void load(T* out, const T* in, std::size_t n) { __builtin_memcpy(out, in, n * sizeof(T)); }
  static void store(T* out, const T* in, std::size_t n) {
    __builtin_memcpy(out, in, n * sizeof(T));
  }
};

struct Half {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static void load(float* out, const std::uint16_t* in, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(halves));
    }
#endif
    for (; i < n; ++i) out[i] = half_to_float(in[i]);
  }
  static void store(std::uint16_t* out, const float* in, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) {
      const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in + i), _MM_FROUND_TO_NEAREST_INT);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), halves);
    }
#endif
    for (; i < n; ++i) out[i] = float_to_half(in[i]);
  }
};

struct Bfloat {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static void load(float* out, const std::uint16_t* in, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = bfloat_to_float(in[i]);
  }
  static void store(std::uint16_t* out, const float* in, std::size_t n) {
    for (std::size_t i = 0; i < n; ++i) out[i] = float_to_bfloat(in[i]);
  }
};

// Integer sums and products go through unsigned: overflow wraps instead of being undefined.
template <class T>
struct Wrapping {
  using Type = T;
};
template <>
struct Wrapping<std::int32_t> {
  using Type = std::uint32_t;
};
template <>
struct Wrapping<std::int64_t> {
  using Type = std::uint64_t;
};

struct Sum {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
  }
};

struct Product {
  template <class T>
  static T apply(T a, T b) {
    using W = typename Wrapping<T>::Type;
    return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
  }
};

// b != b: a NaN on either side is passed on, whichever rank it comes from.
struct Min {
  template <class T>
  static T apply(T a, T b) {
    return (b < a) | (b != b) ? b : a;
  }
};

struct Max {
  template <class T>
  static T apply(T a, T b) {
    return (b > a) | (b != b) ? b : a;
  }
};

template <class T>
void divide(T* values, std::size_t n, double divisor) {
  const T by = static_cast<T>(divisor);
  for (std::size_t i = 0; i < n; ++i) values[i] /= by;
}
void divide(std::int32_t*, std::size_t, double) {}
void divide(std::int64_t*, std::size_t, double) {}

// Tile by tile through a small accumulator that stays in the first-level cache.
template <class In, class Out, class Op>
void reduce(void* out, const void* const* in, int n_in, std::size_t count, double divisor) {
  using T = typename In::Accumulator;
  constexpr std::size_t kTile = 512;
  alignas(64) T sum[kTile];
  alignas(64) T next[kTile];
  for (std::size_t base = 0; base < count; base += kTile) {
    const std::size_t n = count - base < kTile ? count - base : kTile;
    In::load(sum, static_cast<const typename In::Stored*>(in[0]) + base, n);
    for (int source = 1; source < n_in; ++source) {
      In::load(next, static_cast<const typename In::Stored*>(in[source]) + base, n);
      for (std::size_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    if (divisor != 1.0) divide(sum, n, divisor);
    Out::store(static_cast<typename Out::Stored*>(out) + base, sum, n);
  }
}

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
  _mm_sfence();
  __builtin_memcpy(to + i, from + i, nbytes - i);
#else
  __builtin_memcpy(out, in, nbytes);
#endif
}

template <class In, class Out>
void fill(ReduceFunction (&by_op)[4]) {
  by_op[DDL_OP_SUM] = reduce<In, Out, Sum>;
  by_op[DDL_OP_PRODUCT] = reduce<In, Out, Product>;
  by_op[DDL_OP_MIN] = reduce<In, Out, Min>;
  by_op[DDL_OP_MAX] = reduce<In, Out, Max>;
}

template <class Element>
void fill(KernelTable* table, DDL_Type type) {
  using Accumulators = Plain<typename Element::Accumulator>;
  fill<Element, Element>(table->reduce[kFull][type]);
  fill<Element, Accumulators>(table->reduce[kPartial][type]);
  fill<Accumulators, Element>(table->reduce[kFinal][type]);
}

KernelTable make_table(const char* name) {
  KernelTable table{};
  table.name = name;
  fill<Plain<float>>(&table, DDL_TYPE_FLOAT);
  fill<Plain<double>>(&table, DDL_TYPE_DOUBLE);
  fill<Half>(&table, DDL_TYPE_HALF);
  fill<Bfloat>(&table, DDL_TYPE_BFLOAT16);
  fill<Plain<std::int32_t>>(&table, DDL_TYPE_INT32);
  fill<Plain<std::int64_t>>(&table, DDL_TYPE_INT64);
  table.copy_streaming = copy_streaming;
  return table;
}

}  // namespace
}  // namespace ddl
