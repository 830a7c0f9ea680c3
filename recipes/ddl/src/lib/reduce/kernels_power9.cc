// The same loops, compiled for POWER9 and later, which convert 16-bit floats in vectors. The
// generic kernels have VSX already, since little-endian Linux begins with POWER8.
#include "reduce/kernels.h"

#if defined(_ARCH_PWR9)
#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* power9_kernels() {
  if (__builtin_cpu_supports("arch_3_00") == 0) return nullptr;
  static const KernelTable table = make_table("power9");
  return &table;
}

}  // namespace ddl
#else
namespace ddl {

const KernelTable* power9_kernels() { return nullptr; }

}  // namespace ddl
#endif
