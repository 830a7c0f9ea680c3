// The same loops where the processor converts to bfloat16 itself, which AVX2 has to spell out. The
// other types keep AVX2's width: their sums wait for memory, not for instructions.
#include "reduce/kernels.h"

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__AVX512DQ__)
#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* avx512_kernels() {
  const bool is_there =
      __builtin_cpu_supports("avx512bf16") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("f16c") != 0;
  if (!is_there) return nullptr;
  static const KernelTable table = make_table("avx512");
  return &table;
}

}  // namespace ddl
#else
namespace ddl {

const KernelTable* avx512_kernels() { return nullptr; }

}  // namespace ddl
#endif
