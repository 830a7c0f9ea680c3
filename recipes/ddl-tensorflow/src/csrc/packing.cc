#include "packing.h"

#include <cstring>
#include <map>
#include <utility>

#include "status.h"

namespace ddl_tensorflow {
namespace {

// For tensors of this size and more, a message of their own costs less than two copies.
constexpr std::size_t kLarge = std::size_t{512} << 10;
constexpr std::size_t kMaxBuffer = std::size_t{8} << 20;

std::size_t size_of(DDL_Type type) {
  if (type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16) return 2;
  return type == DDL_TYPE_DOUBLE || type == DDL_TYPE_INT64 ? 8 : 4;
}

std::size_t bytes_of(const Reduction& one) { return one.count * size_of(one.type); }

absl::Status reduce_one(ddl_comm_t comm, const Reduction& one) {
  return to_status(ddl_comm_allreduce(comm, one.send, one.recv, one.count, one.type, one.op),
                   "allreduce");
}

}  // namespace

absl::Status Packing::reduce(ddl_comm_t comm, const std::vector<Reduction>& reductions) {
  std::map<std::pair<DDL_Type, DDL_Op>, std::vector<Reduction>> small;
  for (const Reduction& one : reductions) {
    if (one.count == 0) continue;
    if (bytes_of(one) < kLarge) {
      small[{one.type, one.op}].push_back(one);
    } else if (const absl::Status status = reduce_one(comm, one); !status.ok()) {
      return status;
    }
  }
  for (const auto& [kind, all] : small) {
    std::vector<Reduction> alike;
    std::size_t nbytes = 0;
    for (const Reduction& one : all) {
      if (nbytes + bytes_of(one) > kMaxBuffer) {
        if (const absl::Status status = reduce_packed(comm, alike); !status.ok()) return status;
        alike.clear();
        nbytes = 0;
      }
      alike.push_back(one);
      nbytes += bytes_of(one);
    }
    if (const absl::Status status = reduce_packed(comm, alike); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Packing::reduce_packed(ddl_comm_t comm, const std::vector<Reduction>& alike) {
  if (alike.size() == 1) return reduce_one(comm, alike[0]);
  std::size_t nbytes = 0;
  std::size_t count = 0;
  for (const Reduction& one : alike) {
    nbytes += bytes_of(one);
    count += one.count;
  }
  if (buffer_.size() < nbytes) buffer_.resize(nbytes);
  std::byte* end = buffer_.data();
  for (const Reduction& one : alike) {
    std::memcpy(end, one.send, bytes_of(one));
    end += bytes_of(one);
  }
  const Reduction packed{buffer_.data(), buffer_.data(), count, alike[0].type, alike[0].op};
  if (const absl::Status status = reduce_one(comm, packed); !status.ok()) return status;
  const std::byte* begin = buffer_.data();
  for (const Reduction& one : alike) {
    std::memcpy(one.recv, begin, bytes_of(one));
    begin += bytes_of(one);
  }
  return absl::OkStatus();
}

}  // namespace ddl_tensorflow
