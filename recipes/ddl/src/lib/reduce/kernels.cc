#include "reduce/kernels.h"

#include <initializer_list>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace ddl {
namespace {

constexpr std::size_t kStreamingBytes = std::size_t{16} << 20;

}  // namespace

// Each kernels_X.cc knows which processors have its instructions, and is null on others.
const KernelTable& kernels() {
  static const KernelTable& best = []() -> const KernelTable& {
    for (const KernelTable* table :
         {avx512_kernels(), avx2_kernels(), power9_kernels(), sve_kernels(), bf16_kernels()}) {
      if (table != nullptr) return *table;
    }
    return generic_kernels();
  }();
  return best;
}

CopyFunction copy_function(std::size_t nbytes, bool is_in_place) {
  return nbytes >= kStreamingBytes && !is_in_place ? kernels().copy_streaming : kernels().copy;
}

void end_copies() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

ReduceFunction reduce_function(DDL_Type type, DDL_Op op) {
  return kernels().reduce[type][op == DDL_OP_AVERAGE ? DDL_OP_SUM : op];
}

}  // namespace ddl
