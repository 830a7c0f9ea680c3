// What a rank says about the collective it enters, so that ranks can see that they agree.
#pragma once

#include <ddl/ddl.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddl {

enum class Collective : std::uint32_t {
  kNone,
  kAllreduce,
  kReduceScatter,
  kBroadcast,
  kAllgather,
  kBarrier,
  kGather,
  kScatter,
  kAlltoall,
  kAlltoallv,
  kFinalize,
};

// Plain bytes: it travels through shared memory and MPI. Fields that a collective has not are 0.
struct Call {
  Collective collective = Collective::kNone;
  std::uint32_t type = 0;
  std::uint32_t op = 0;
  std::int32_t root = 0;
  std::uint64_t count = 0;  // elements for reductions, else bytes

  bool operator==(const Call& other) const {
    return collective == other.collective && type == other.type && op == other.op &&
           root == other.root && count == other.count;
  }
};

std::string describe(const Call& call);

std::size_t size_of(DDL_Type type);
const char* name_of(DDL_Type type);
const char* name_of(DDL_Op op);

}  // namespace ddl
