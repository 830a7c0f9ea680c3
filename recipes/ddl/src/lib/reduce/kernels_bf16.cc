// The same loops, compiled for 64-bit Arm's processors that convert to bfloat16 (Armv8.6). The
// generic kernels have NEON already, with conversions of float16, as each of these processors has.
#include "reduce/kernels.h"

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* bf16_kernels() {
  if ((getauxval(AT_HWCAP2) & HWCAP2_BF16) == 0) return nullptr;
  static const KernelTable table = make_table("bf16");
  return &table;
}

}  // namespace ddl
#else
namespace ddl {

const KernelTable* bf16_kernels() { return nullptr; }

}  // namespace ddl
#endif
