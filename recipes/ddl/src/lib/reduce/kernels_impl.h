// The kernels' loops, plain enough for the compiler to vectorise. Included by one source file per
// instruction set; everything has internal linkage and no inline library function is used, so that
// the linker cannot take one file's code for another's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "reduce/copies_impl.h"
#include "reduce/elements_impl.h"
#include "reduce/kernels.h"

namespace ddl {
namespace {

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
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl)             \
  static_assert(sizeof(element::Stored) == nbytes, "its size differs"); \
  fill<element>(&table, type);
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
  table.copy = best_copy();
  table.copy_streaming = copy_streaming;
  return table;
}

}  // namespace
}  // namespace ddl
