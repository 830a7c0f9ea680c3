// The same loops, compiled for AVX2 and F16C. Only reached when the processor has both.
#include "reduce/kernels.h"

#if defined(__AVX2__) && defined(__F16C__)
#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* avx2_kernels() {
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("f16c") == 0) return nullptr;
  static const KernelTable table = make_table("avx2");
  return &table;
}

}  // namespace ddl
#else
namespace ddl {

const KernelTable* avx2_kernels() { return nullptr; }

}  // namespace ddl
#endif
