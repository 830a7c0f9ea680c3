// The reduction loops: every instruction set against arithmetic written the slow way.
#include "reduce/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "base/types.h"
#include "reduce/kernels_impl.h"

namespace ddl {
namespace {

class KernelsTest : public testing::TestWithParam<const KernelTable*> {
 protected:
  template <class T>
  std::vector<T> reduce(DDL_Type type, DDL_Op op, const std::vector<std::vector<T>>& inputs,
                        double divisor = 1.0) {
    std::vector<const void*> pointers;
    for (const auto& input : inputs) pointers.push_back(input.data());
    std::vector<T> out(inputs[0].size());
    GetParam()->reduce[type][op](out.data(), pointers.data(), static_cast<int>(inputs.size()),
                                 out.size(), divisor);
    return out;
  }

  // The loops' own conversions, one by one.
  static std::vector<float> widen(DDL_Type type, const std::vector<std::uint16_t>& in) {
    std::vector<float> out;
    for (const std::uint16_t value : in) {
      out.push_back(type == DDL_TYPE_HALF ? Half::widen(value) : Bfloat::widen(value));
    }
    return out;
  }
  static std::vector<std::uint16_t> narrow(DDL_Type type, const std::vector<float>& in) {
    std::vector<std::uint16_t> out;
    for (const float value : in) {
      out.push_back(type == DDL_TYPE_HALF ? Half::narrow(value) : Bfloat::narrow(value));
    }
    return out;
  }
};

// By the definition of binary16.
double half_value(std::uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int mantissa = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) {
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

std::vector<std::uint16_t> all_patterns() {
  std::vector<std::uint16_t> patterns(65536);
  for (int i = 0; i < 65536; ++i) patterns[i] = static_cast<std::uint16_t>(i);
  return patterns;
}

TEST_P(KernelsTest, WidensEveryHalf) {
  const auto patterns = all_patterns();
  const auto wide = widen(DDL_TYPE_HALF, patterns);
  for (int i = 0; i < 65536; ++i) {
    const double expected = half_value(patterns[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    } else {
      EXPECT_EQ(wide[i], expected) << i;
      EXPECT_EQ(std::signbit(wide[i]), std::signbit(expected)) << i;
    }
  }
}

TEST_P(KernelsTest, NarrowsToTheNearestHalf) {
  // Every half, the exact middles between neighbours, and one float to either side of these.
  std::vector<float> values;
  for (std::uint16_t half = 0; half < 0x7c00; ++half) {
    // The middle above the largest number decides between it and infinity.
    const double next = half == 0x7bff ? 65536.0 : half_value(half + 1);
    const auto middle = static_cast<float>((half_value(half) + next) / 2);
    for (const float value : {static_cast<float>(half_value(half)), middle,
                              std::nextafter(middle, 0.0F), std::nextafter(middle, 1e6F)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  const auto narrowed = narrow(DDL_TYPE_HALF, values);
  for (std::size_t i = 0; i < values.size(); i += 8) {
    const auto half = static_cast<std::uint16_t>(i / 8);
    const std::uint16_t even = (half & 1) == 0 ? half : half + 1;
    const std::uint16_t expected[4] = {half, even, half, static_cast<std::uint16_t>(half + 1)};
    for (int k = 0; k < 4; ++k) {
      ASSERT_EQ(narrowed[i + 2 * k], expected[k]) << values[i + 2 * k];
      ASSERT_EQ(narrowed[i + 2 * k + 1], expected[k] | 0x8000) << values[i + 2 * k + 1];
    }
  }
}

TEST_P(KernelsTest, KeepsBfloatsAndRoundsToTheNearest) {
  const auto patterns = all_patterns();
  const auto wide = widen(DDL_TYPE_BFLOAT16, patterns);
  const auto back = narrow(DDL_TYPE_BFLOAT16, wide);
  for (int i = 0; i < 65536; ++i) {
    ASSERT_EQ(bits_of(wide[i]), static_cast<std::uint32_t>(i) << 16);
    if (std::isnan(wide[i])) {
      ASSERT_TRUE((back[i] & 0x7f80) == 0x7f80 && (back[i] & 0x7f) != 0) << i;
    } else {
      ASSERT_EQ(back[i], i);
    }
  }
  const std::vector<float> ties = {float_of(0x3f808000), float_of(0x3f818000), float_of(0x3f808001),
                                   float_of(0x3f817fff), float_of(0x7f7fffff)};
  const std::vector<std::uint16_t> expected = {0x3f80, 0x3f82, 0x3f81, 0x3f81, 0x7f80};
  EXPECT_EQ(narrow(DDL_TYPE_BFLOAT16, ties), expected);
}

TEST_P(KernelsTest, NansStayNans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const DDL_Type type : {DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
    const auto narrowed = narrow(type, {nan, -nan, float_of(0x7f800001), float_of(0xffffffff)});
    for (const float value : widen(type, narrowed)) EXPECT_TRUE(std::isnan(value));
  }
  for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_PRODUCT, DDL_OP_MIN, DDL_OP_MAX}) {
    const auto first = reduce<float>(DDL_TYPE_FLOAT, op, {{nan}, {1}, {2}});
    const auto middle = reduce<float>(DDL_TYPE_FLOAT, op, {{1}, {nan}, {2}});
    EXPECT_TRUE(std::isnan(first[0])) << name_of(op);
    EXPECT_TRUE(std::isnan(middle[0])) << name_of(op);
  }
}

template <class T>
T apply(DDL_Op op, T a, T b) {
  switch (op) {
    case DDL_OP_SUM:
      return a + b;
    case DDL_OP_PRODUCT:
      return a * b;
    case DDL_OP_MIN:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

// Every length round a tile's border, so that each vector tail is met.
template <class T>
void check_against_loop(const KernelTable& table, DDL_Type type) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> values(-5, 5);  // products of 11 fit into 32 bits
  for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_PRODUCT, DDL_OP_MIN, DDL_OP_MAX}) {
    for (std::size_t count : {0, 1, 2, 3, 5, 7, 8, 9, 31, 511, 512, 513, 1000}) {
      for (int n_in : {1, 2, 3, 4, 5, 6, 7, 8, 11}) {
        std::vector<std::vector<T>> inputs(n_in, std::vector<T>(count));
        std::vector<const void*> pointers;
        for (auto& input : inputs) {
          for (T& value : input) value = static_cast<T>(values(random));
          pointers.push_back(input.data());
        }
        std::vector<T> expected = inputs[0];
        for (int k = 1; k < n_in; ++k) {
          for (std::size_t i = 0; i < count; ++i)
            expected[i] = apply(op, expected[i], inputs[k][i]);
        }
        // In place in the last input, and one element beyond must stay.
        std::vector<T> out(count + 1, T{77});
        table.reduce[type][op](out.data(), pointers.data(), n_in, count, 1.0);
        EXPECT_EQ(out.back(), T{77});
        out.resize(count);
        EXPECT_EQ(out, expected) << name_of(type) << ' ' << name_of(op) << ' ' << count;
        table.reduce[type][op](inputs.back().data(), pointers.data(), n_in, count, 1.0);
        EXPECT_EQ(inputs.back(), expected) << "in place";
      }
    }
  }
}

TEST_P(KernelsTest, MatchesTheLoop) {
  check_against_loop<float>(*GetParam(), DDL_TYPE_FLOAT);
  check_against_loop<double>(*GetParam(), DDL_TYPE_DOUBLE);
  check_against_loop<std::int32_t>(*GetParam(), DDL_TYPE_INT32);
  check_against_loop<std::int64_t>(*GetParam(), DDL_TYPE_INT64);
}

float apply(DDL_Op op, float a, float b) {
  if (op == DDL_OP_SUM) return Sum::apply(a, b);
  if (op == DDL_OP_PRODUCT) return Product::apply(a, b);
  return op == DDL_OP_MIN ? Min::apply(a, b) : Max::apply(a, b);
}

// Whatever way the kernels take, the bits are those of one element at a time.
TEST_P(KernelsTest, NarrowSumsAreRoundedOnce) {
  std::mt19937 random(3);
  for (const DDL_Type type : {DDL_TYPE_HALF, DDL_TYPE_BFLOAT16}) {
    for (const DDL_Op op : {DDL_OP_SUM, DDL_OP_PRODUCT, DDL_OP_MIN, DDL_OP_MAX}) {
      for (const double divisor : {1.0, 3.0}) {
        for (int n_in = 1; n_in <= 6; ++n_in) {
          // Any bits: also infinities, subnormals and numbers that are none.
          std::vector<std::vector<std::uint16_t>> inputs(n_in, std::vector<std::uint16_t>(1003));
          std::vector<const void*> pointers;
          std::vector<std::vector<float>> wide;
          for (auto& input : inputs) {
            for (auto& value : input) value = static_cast<std::uint16_t>(random());
            pointers.push_back(input.data());
            wide.push_back(widen(type, input));
          }
          std::vector<float> sum = wide[0];
          for (int k = 1; k < n_in; ++k) {
            for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = apply(op, sum[i], wide[k][i]);
          }
          for (float& value : sum) value /= static_cast<float>(divisor);
          const std::vector<std::uint16_t> expected = narrow(type, sum);
          GetParam()->reduce[type][op](inputs[0].data(), pointers.data(), n_in, 1003, divisor);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            const float want = widen(type, {expected[i]})[0];
            const float got = widen(type, {inputs[0][i]})[0];
            if (std::isnan(want)) {
              EXPECT_TRUE(std::isnan(got));
            } else {
              ASSERT_EQ(inputs[0][i], expected[i]) << name_of(type) << name_of(op) << n_in;
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelsTest, IntegersWrap) {
  constexpr std::int32_t top = std::numeric_limits<std::int32_t>::max();
  const auto sum = reduce<std::int32_t>(DDL_TYPE_INT32, DDL_OP_SUM, {{top}, {1}});
  EXPECT_EQ(sum[0], std::numeric_limits<std::int32_t>::min());
}

TEST_P(KernelsTest, DividesAfterTheSum) {
  const auto third = reduce<float>(DDL_TYPE_FLOAT, DDL_OP_SUM, {{1}, {0}, {0}}, 3.0);
  EXPECT_EQ(third[0], 1.0F / 3.0F);
  // The sum, 120000, is beyond float16; the average is not.
  const std::uint16_t sixty_thousand = 0x7b53;
  const auto average =
      reduce<std::uint16_t>(DDL_TYPE_HALF, DDL_OP_SUM, {{sixty_thousand}, {sixty_thousand}}, 2.0);
  EXPECT_EQ(average[0], sixty_thousand);
}

TEST_P(KernelsTest, CopiesCopyAllAndNoMore) {
  std::vector<char> from(5000);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 37);
  for (std::size_t shift : {0, 1, 31, 32, 33}) {
    for (std::size_t n : {0, 1, 31, 1023, 1024, 1025, 1151, 1152, 4096, 4900}) {
      for (const CopyFunction copy : {GetParam()->copy, GetParam()->copy_streaming}) {
        std::vector<char> to(5000, 'x');
        copy(to.data() + shift, from.data() + 3, n);
        EXPECT_EQ(std::memcmp(to.data() + shift, from.data() + 3, n), 0) << shift << ' ' << n;
        EXPECT_EQ(to[shift + n], 'x');
        if (shift > 0) EXPECT_EQ(to[shift - 1], 'x');
      }
    }
  }
}

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> all = {&generic_kernels()};
  for (const KernelTable* table :
       {avx512_kernels(), avx2_kernels(), power9_kernels(), sve_kernels(), bf16_kernels()}) {
    if (table != nullptr) all.push_back(table);
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(All, KernelsTest, testing::ValuesIn(tables()),
                         [](const auto& info) { return info.param->name; });

}  // namespace
}  // namespace ddl
