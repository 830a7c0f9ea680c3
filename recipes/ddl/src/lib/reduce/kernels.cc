#include "reduce/kernels.h"

#include "call.h"

namespace ddl {

const KernelTable& kernels() {
  static const KernelTable& best = avx2_kernels() != nullptr ? *avx2_kernels() : generic_kernels();
  return best;
}

ReduceFunction reduce_function(Stage stage, DDL_Type type, DDL_Op op) {
  return kernels().reduce[stage][type][op == DDL_OP_AVERAGE ? DDL_OP_SUM : op];
}

std::size_t accumulator_size(DDL_Type type) {
  return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16 ? sizeof(float) : size_of(type);
}

}  // namespace ddl
