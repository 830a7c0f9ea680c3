// Many reductions in few messages. Which are small, and how large a message of them may be: kLarge
// and kMaxBuffer in packing.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "operation.h"

namespace ddl_tensorflow {

class Packing {
 public:
  // Reduces all; the same list on all ranks.
  absl::Status reduce(ddl_comm_t comm, const std::vector<Reduction>& reductions);

 private:
  absl::Status reduce_packed(ddl_comm_t comm, const std::vector<Reduction>& alike);

  std::vector<std::byte> buffer_;
};

}  // namespace ddl_tensorflow
