// The kernels' loops, plain enough for the compiler to vectorise. Included by one source file per
// instruction set; everything has internal linkage and no inline library function is used, so that
// the linker cannot take one file's code for another's.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(_ARCH_PWR9)
#include <altivec.h>
#endif

#include "reduce/copies_impl.h"
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

// An element type: how it is stored, what it is accumulated in, and the way between, for one and in
// bulk; and by blocks of `kBlock` elements in two vectors (which elements are in which is its own
// affair), where the compiler does not find the instructions itself.
template <class T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  static constexpr std::size_t kBlock = 0;
  static T widen(T value) { return value; }
  static T narrow(T value) { return value; }
};

struct Half {
  using Stored = std::uint16_t;
  using Accumulator = float;
  static float widen(std::uint16_t value) { return half_to_float(value); }
  static std::uint16_t narrow(float value) { return float_to_half(value); }
#if defined(__F16C__)
  static constexpr std::size_t kBlock = 16;
  static __m256 load8(const std::uint16_t* in) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(in)));
  }
  static void store8(std::uint16_t* out, __m256 values) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  static __m256 load_first(const std::uint16_t* in) { return load8(in); }
  static __m256 load_second(const std::uint16_t* in) { return load8(in + 8); }
  static void store_block(std::uint16_t* out, __m256 first, __m256 second) {
    store8(out, first);
    store8(out + 8, second);
  }
#elif defined(_ARCH_PWR9)
  static constexpr std::size_t kBlock = 8;
  static __vector float load_first(const std::uint16_t* in) {
    return vec_extract_fp32_from_shorth(vec_xl(0, in));
  }
  static __vector float load_second(const std::uint16_t* in) {
    return vec_extract_fp32_from_shortl(vec_xl(0, in));
  }
  static void store_block(std::uint16_t* out, __vector float first, __vector float second) {
    vec_xst(vec_pack_to_short_fp32(first, second), 0, out);
  }
#else
  static constexpr std::size_t kBlock = 0;
#endif
  static void load(float* out, const std::uint16_t* in, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, load8(in + i));
#elif defined(_ARCH_PWR9)
    for (; i + 8 <= n; i += 8) {
      vec_xst(load_first(in + i), 0, out + i);
      vec_xst(load_second(in + i), 0, out + i + 4);
    }
#endif
    for (; i < n; ++i) out[i] = half_to_float(in[i]);
  }
  static void store(std::uint16_t* out, const float* in, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) store8(out + i, _mm256_loadu_ps(in + i));
#elif defined(_ARCH_PWR9)
    for (; i + 8 <= n; i += 8) store_block(out + i, vec_xl(0, in + i), vec_xl(0, in + i + 4));
#endif
    for (; i < n; ++i) out[i] = float_to_half(in[i]);
  }
};

struct Bfloat {
  using Stored = std::uint16_t;
  using Accumulator = float;
#if defined(__AVX512BF16__) && defined(__AVX512DQ__)
  static constexpr std::size_t kBlock = 32;
  // A float's upper half. One vector has the even elements, one the odd ones: none has to move.
  static __m512 load_first(const std::uint16_t* in) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(in), 16));
  }
  static __m512 load_second(const std::uint16_t* in) {
    return _mm512_castsi512_ps(
        _mm512_and_si512(_mm512_loadu_si512(in), _mm512_set1_epi32(~0xffff)));
  }
  static void store_block(std::uint16_t* out, __m512 first, __m512 second) {
    constexpr int kSubnormal = 0x20;
    if ((_mm512_fpclass_ps_mask(first, kSubnormal) | _mm512_fpclass_ps_mask(second, kSubnormal)) !=
        0) {  // the instruction would take them for zeros
      alignas(64) float even[16];
      alignas(64) float odd[16];
      _mm512_store_ps(even, first);
      _mm512_store_ps(odd, second);
      for (int i = 0; i < 16; ++i) {
        out[2 * i] = float_to_bfloat(even[i]);
        out[2 * i + 1] = float_to_bfloat(odd[i]);
      }
      return;
    }
    // All of `first`, then all of `second`: back between each other.
    const __m512i all = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(alternating(), all));
  }
  // 0 16 1 17 …
  static __m512i alternating() {
    const __m512i pairs = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i odd = _mm512_add_epi32(pairs, _mm512_set1_epi32(16));
    return _mm512_or_si512(pairs, _mm512_slli_epi32(odd, 16));
  }
#elif defined(__AVX2__)
  static constexpr std::size_t kBlock = 16;
  // A float's upper half. One vector has the even elements, one the odd ones: none has to move.
  static __m256 load_first(const std::uint16_t* in) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(load16(in), 16));
  }
  static __m256 load_second(const std::uint16_t* in) {
    return _mm256_castsi256_ps(_mm256_and_si256(load16(in), _mm256_set1_epi32(~0xffff)));
  }
  static void store_block(std::uint16_t* out, __m256 first, __m256 second) {
    if (_mm256_movemask_ps(_mm256_cmp_ps(first, second, _CMP_UNORD_Q)) != 0) {
      first = quiet(first);
      second = quiet(second);
    }
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(out),
        _mm256_blend_epi16(_mm256_srli_epi32(round(first), 16), round(second), 0xaa));
  }
  static __m256i load16(const std::uint16_t* in) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
  }
  // To nearest, ties to even; the lower halves are left over.
  static __m256i round(__m256 values) {
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  }
  // What is no number without what rounding might carry, and so that it stays none.
  static __m256 quiet(__m256 values) {
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256i upper = _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(~0xffff));
    const __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_ps(values, _mm256_castsi256_ps(nan), is_nan);
  }
#else
  static constexpr std::size_t kBlock = 0;
#endif
  static float widen(std::uint16_t value) { return bfloat_to_float(value); }
  static std::uint16_t narrow(float value) { return float_to_bfloat(value); }
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

// -- By tiles of accumulators: for sums of many 16-bit elements, which are not rounded between. ---

constexpr std::size_t kTile = 512;

// A small accumulator stays in the first-level cache.
template <class Element, class Op>
void reduce_by_tiles(void* out, const void* const* in, int n_in, std::size_t count,
                     double divisor) {
  using T = typename Element::Accumulator;
  using Stored = typename Element::Stored;
  alignas(64) T sum[kTile];
  alignas(64) T next[kTile];
  for (std::size_t base = 0; base < count; base += kTile) {
    const std::size_t n = count - base < kTile ? count - base : kTile;
    Element::load(sum, static_cast<const Stored*>(in[0]) + base, n);
    for (int source = 1; source < n_in; ++source) {
      Element::load(next, static_cast<const Stored*>(in[source]) + base, n);
      for (std::size_t i = 0; i < n; ++i) sum[i] = Op::apply(sum[i], next[i]);
    }
    if (divisor != 1.0) {
      for (std::size_t i = 0; i < n; ++i) sum[i] /= static_cast<T>(divisor);
    }
    Element::store(static_cast<Stored*>(out) + base, sum, n);
  }
}

// -- In registers. -------------------------------------------------------------------------------

// out[i] = (in[0][i] op … op in[N-1][i]) / divisor. `out` may be one of the inputs, element for
// element: there is nothing that a loop carries on, which the compiler cannot see.
template <class Element, class Op, int N, bool kDivides>
void fold(typename Element::Stored* out, const typename Element::Stored* const (&in)[4],
          std::size_t n, typename Element::Accumulator divisor) {
  const auto combine = [&](auto load, std::size_t i) {
    auto sum = load(in[0] + i);
    if constexpr (N > 1) sum = Op::apply(sum, load(in[1] + i));
    if constexpr (N > 2) sum = Op::apply(sum, load(in[2] + i));
    if constexpr (N > 3) sum = Op::apply(sum, load(in[3] + i));
    if constexpr (kDivides) sum = sum / divisor;
    return sum;
  };
  std::size_t begin = 0;
  if constexpr (constexpr std::size_t kBlock = Element::kBlock; kBlock > 0) {
    const auto first = [](const auto* from) { return Element::load_first(from); };
    const auto second = [](const auto* from) { return Element::load_second(from); };
    for (; begin + kBlock <= n; begin += kBlock) {
      Element::store_block(out + begin, combine(first, begin), combine(second, begin));
    }
  }
  const auto load = [](const auto* from) { return Element::widen(*from); };
#pragma GCC ivdep
  for (std::size_t i = begin; i < n; ++i) out[i] = Element::narrow(combine(load, i));
}

template <class Element, class Op, bool kDivides>
void fold_some(typename Element::Stored* out, const typename Element::Stored* const (&in)[4],
               int n_in, std::size_t n, typename Element::Accumulator divisor) {
  switch (n_in) {
    case 1:
      return fold<Element, Op, 1, kDivides>(out, in, n, divisor);
    case 2:
      return fold<Element, Op, 2, kDivides>(out, in, n, divisor);
    case 3:
      return fold<Element, Op, 3, kDivides>(out, in, n, divisor);
    default:
      return fold<Element, Op, 4, kDivides>(out, in, n, divisor);
  }
}

template <class Element, class Op, bool kDivides>
void reduce_plain(void* out, const void* const* in, int n_in, std::size_t count, double divisor) {
  using T = typename Element::Stored;
  const auto by = static_cast<typename Element::Accumulator>(divisor);
  alignas(64) T sum[kTile];
  for (std::size_t base = 0; base < count; base += kTile) {
    const std::size_t n = count - base < kTile ? count - base : kTile;
    const auto at = [&](int source) { return static_cast<const T*>(in[source]) + base; };
    T* to = static_cast<T*>(out) + base;
    const T* some[4] = {};
    for (int i = 0; i < n_in && i < 4; ++i) some[i] = at(i);
    if (n_in <= 4) {
      fold_some<Element, Op, kDivides>(to, some, n_in, n, by);
      continue;
    }
    // Four at first, then three at a time on top.
    fold<Element, Op, 4, false>(sum, some, n, by);
    some[0] = sum;
    int source = 4;
    for (; source + 3 < n_in; source += 3) {
      for (int i = 0; i < 3; ++i) some[i + 1] = at(source + i);
      fold<Element, Op, 4, false>(sum, some, n, by);
    }
    for (int i = 0; source + i < n_in; ++i) some[i + 1] = at(source + i);
    fold_some<Element, Op, kDivides>(to, some, n_in - source + 1, n, by);
  }
}

template <class Element, class Op>
void reduce(void* out, const void* const* in, int n_in, std::size_t count, double divisor) {
  using T = typename Element::Accumulator;
  constexpr bool kIsNarrow = sizeof(typename Element::Stored) < sizeof(T);
  constexpr bool kIsInteger = static_cast<T>(0.5) == T{0};
  if constexpr (kIsNarrow) {
    if (n_in > 4) return reduce_by_tiles<Element, Op>(out, in, n_in, count, divisor);
  }
  if (kIsInteger || divisor == 1.0) {
    reduce_plain<Element, Op, false>(out, in, n_in, count, divisor);
  } else {
    reduce_plain<Element, Op, !kIsInteger>(out, in, n_in, count, divisor);
  }
}

template <class Element>
void fill(KernelTable* table, DDL_Type type) {
  ReduceFunction(&by_op)[4] = table->reduce[type];
  by_op[DDL_OP_SUM] = reduce<Element, Sum>;
  by_op[DDL_OP_PRODUCT] = reduce<Element, Product>;
  by_op[DDL_OP_MIN] = reduce<Element, Min>;
  by_op[DDL_OP_MAX] = reduce<Element, Max>;
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
  table.copy = best_copy();
  table.copy_streaming = copy_streaming;
  return table;
}

}  // namespace
}  // namespace ddl
