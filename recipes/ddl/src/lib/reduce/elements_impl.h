// The element types of the kernels. As kernels_impl.h: everything has internal linkage, and no
// inline library function is used.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(_ARCH_PWR9)
#include <altivec.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// GCC 12 vectorises conversions of 16-bit floats for SVE, but not for NEON.
#if defined(__aarch64__) && !defined(__ARM_FEATURE_SVE)
#define DDL_NEON_BLOCKS 1
#else
#define DDL_NEON_BLOCKS 0
#endif

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

#if defined(__aarch64__)

// Each processor has the conversions, which the compiler finds for scalars and for SVE's vectors.
inline float half_to_float(std::uint16_t half) {
  __fp16 value;
  __builtin_memcpy(&value, &half, sizeof(value));
  return static_cast<float>(value);
}

inline std::uint16_t float_to_half(float value) {
  const auto rounded = static_cast<__fp16>(value);
  std::uint16_t half;
  __builtin_memcpy(&half, &rounded, sizeof(half));
  return half;
}

#else

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

#endif

inline float bfloat_to_float(std::uint16_t value) {
  return float_of(static_cast<std::uint32_t>(value) << 16);
}

inline std::uint16_t float_to_bfloat(float value) {
  const std::uint32_t bits = bits_of(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t nan = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

// An element type: the type in which it is stored, the one in which it is accumulated, and the
// conversion between them, for one and in bulk. Where the compiler does not find the instructions
// itself, it also converts blocks of `kBlock` elements in two vectors, in any order of its own.
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
#elif DDL_NEON_BLOCKS
  static constexpr std::size_t kBlock = 8;
  static float32x4_t load_first(const std::uint16_t* in) { return load4(in); }
  static float32x4_t load_second(const std::uint16_t* in) { return load4(in + 4); }
  static void store_block(std::uint16_t* out, float32x4_t first, float32x4_t second) {
    vst1q_u16(out, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(first), second)));
  }
  static float32x4_t load4(const std::uint16_t* in) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(in)));
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
#elif DDL_NEON_BLOCKS
    for (; i + 4 <= n; i += 4) vst1q_f32(out + i, load4(in + i));
#endif
    for (; i < n; ++i) out[i] = half_to_float(in[i]);
  }
  static void store(std::uint16_t* out, const float* in, std::size_t n) {
    std::size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8) store8(out + i, _mm256_loadu_ps(in + i));
#elif defined(_ARCH_PWR9)
    for (; i + 8 <= n; i += 8) store_block(out + i, vec_xl(0, in + i), vec_xl(0, in + i + 4));
#elif DDL_NEON_BLOCKS
    for (; i + 8 <= n; i += 8) store_block(out + i, vld1q_f32(in + i), vld1q_f32(in + i + 4));
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
  // Clears the lower half of NaNs, so that rounding carries nothing, and keeps them NaNs.
  static __m256 quiet(__m256 values) {
    const __m256 is_nan = _mm256_cmp_ps(values, values, _CMP_UNORD_Q);
    const __m256i upper = _mm256_and_si256(_mm256_castps_si256(values), _mm256_set1_epi32(~0xffff));
    const __m256i nan = _mm256_or_si256(upper, _mm256_set1_epi32(0x400000));
    return _mm256_blendv_ps(values, _mm256_castsi256_ps(nan), is_nan);
  }
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
  static constexpr std::size_t kBlock = 8;
  static float32x4_t load_first(const std::uint16_t* in) {
    return vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(vld1q_u16(in)), 16));
  }
  static float32x4_t load_second(const std::uint16_t* in) {
    return vreinterpretq_f32_u32(vshll_high_n_u16(vld1q_u16(in), 16));
  }
  static void store_block(std::uint16_t* out, float32x4_t first, float32x4_t second) {
    const bfloat16x8_t all = vcvtq_high_bf16_f32(vcvtq_low_bf16_f32(first), second);
    vst1q_u16(out, vreinterpretq_u16_bf16(all));
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

}  // namespace
}  // namespace ddl
