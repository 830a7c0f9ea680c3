// The same loops, compiled for AVX2 and F16C. Only reached when the processor has both.
#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* avx2_kernels() {
#if defined(__AVX2__) && defined(__F16C__)
  static const KernelTable table = make_table("avx2");
  static const bool is_supported =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return is_supported ? &table : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace ddl
