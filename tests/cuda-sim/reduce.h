// Sums of NCCL's types, in the order of the ranks, rounded after each step.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "settings.h"

namespace sim {

inline std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      die("NCCL's type " + std::to_string(static_cast<int>(type)) + " is not simulated");
  }
}

struct Bfloat16 {
  std::uint16_t bits = 0;

  Bfloat16() = default;
  // Rounds to nearest, ties to even.
  explicit Bfloat16(float value) {
    std::uint32_t wide;
    std::memcpy(&wide, &value, sizeof(wide));
    const bool is_nan = (wide & 0x7fffffffU) > 0x7f800000U;
    bits = is_nan ? 0x7fc0 : static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  operator float() const {
    const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }
};

// What NCCL reduces by.
struct Reduction {
  ncclRedOp_t op;
  // ncclRedOpCreatePreMulSum: what each element is multiplied by first, in its type; null: nothing.
  const void* factor;
  int ranks;
};

template <typename T>
T reduced(ncclRedOp_t op, T a, T b) {
  switch (op) {
    case ncclSum:
    case ncclAvg:
      return static_cast<T>(a + b);
    case ncclProd:
      return static_cast<T>(a * b);
    case ncclMax:
      return a < b ? b : a;
    case ncclMin:
      return b < a ? b : a;
    default:
      die("NCCL's operation " + std::to_string(static_cast<int>(op)) + " is not simulated");
  }
}

// out[i] = in(0)[i] op in(1)[i] op …
template <typename T, typename Inputs>
void reduce_all(const Reduction& how, std::size_t count, const Inputs& in, void* out) {
  T factor{};
  if (how.factor != nullptr) std::memcpy(&factor, how.factor, sizeof(factor));
  auto* result = static_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    T sum{};
    for (int rank = 0; rank < how.ranks; ++rank) {
      T value = reinterpret_cast<const T*>(in(rank))[i];
      if (how.factor != nullptr) value = static_cast<T>(value * factor);
      sum = rank == 0 ? value : reduced<T>(how.op, sum, value);
    }
    if (how.op == ncclAvg) sum = static_cast<T>(sum / static_cast<T>(how.ranks));
    result[i] = sum;
  }
}

template <typename Inputs>
void reduce(ncclDataType_t type, const Reduction& how, std::size_t count, const Inputs& in,
            void* out) {
  switch (type) {
    case ncclInt8:
      return reduce_all<std::int8_t>(how, count, in, out);
    case ncclUint8:
      return reduce_all<std::uint8_t>(how, count, in, out);
    case ncclInt32:
      return reduce_all<std::int32_t>(how, count, in, out);
    case ncclUint32:
      return reduce_all<std::uint32_t>(how, count, in, out);
    case ncclInt64:
      return reduce_all<std::int64_t>(how, count, in, out);
    case ncclUint64:
      return reduce_all<std::uint64_t>(how, count, in, out);
    case ncclFloat16:
      return reduce_all<_Float16>(how, count, in, out);
    case ncclBfloat16:
      return reduce_all<Bfloat16>(how, count, in, out);
    case ncclFloat32:
      return reduce_all<float>(how, count, in, out);
    case ncclFloat64:
      return reduce_all<double>(how, count, in, out);
    default:
      size_of(type);  // says that it is none
  }
}

}  // namespace sim
