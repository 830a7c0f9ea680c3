// The call that a rank announces when it enters a collective. The ranks compare theirs.
#pragma once

#include <cstdint>

namespace ddl {

enum class Collective : std::uint32_t {
  kNone,
#define DDL_COLLECTIVE(Name) k##Name,
#include "base/collectives.def"
#undef DDL_COLLECTIVE
};

// Plain bytes: it travels through shared memory and MPI. Fields that a collective does not have are
// 0.
struct Call {
  Collective collective = Collective::kNone;
  std::uint32_t type = 0;
  std::uint32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;  // elements for reductions, else bytes
  // Ranks agree on a kIallreduce before they fuse queued allreduces: there it is the number that
  // this rank could fuse, and may differ. In other calls it is a fingerprint of the sizes that are
  // fused in the message, or 0 when it is not fused.
  std::uint32_t fusion = 0;
  std::uint32_t is_on_device = 0;  // whether the buffers are on a GPU; kCaptured: for a CUDA graph
  static constexpr std::uint32_t kCaptured = 2;

  bool operator==(const Call& other) const {
    return collective == other.collective && type == other.type && op == other.op &&
           root == other.root && count == other.count && is_on_device == other.is_on_device &&
           (collective == Collective::kIallreduce || fusion == other.fusion);
  }
};
// Two of them fill a cache line of the shared memory.
static_assert(sizeof(Call) == 32, "Call has grown");

}  // namespace ddl
