#include "reduce/kernels.h"

#include <cstring>

#include "call.h"

namespace ddl {
namespace {

constexpr std::size_t kStreamingBytes = std::size_t{4} << 20;

void copy_cached(void* out, const void* in, std::size_t n) { std::memcpy(out, in, n); }

}  // namespace

const KernelTable& kernels() {
  static const KernelTable& best = avx2_kernels() != nullptr ? *avx2_kernels() : generic_kernels();
  return best;
}

CopyFunction copy_function(std::size_t nbytes) {
  return nbytes >= kStreamingBytes ? kernels().copy_streaming : copy_cached;
}

ReduceFunction reduce_function(Stage stage, DDL_Type type, DDL_Op op) {
  return kernels().reduce[stage][type][op == DDL_OP_AVERAGE ? DDL_OP_SUM : op];
}

std::size_t accumulator_size(DDL_Type type) {
  return type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16 ? sizeof(float) : size_of(type);
}

}  // namespace ddl
