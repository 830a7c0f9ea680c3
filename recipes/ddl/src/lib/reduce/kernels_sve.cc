// The same loops, compiled for the Scalable Vector Extension, of whatever length. Processors whose
// vectors are NEON's, of 128 bits (Grace), have nothing to gain, and NEON's loops are shorter.
#include "reduce/kernels.h"

#if defined(__ARM_FEATURE_SVE)
#include <sys/prctl.h>

#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable* sve_kernels() {
  constexpr int kNeonBytes = 16;
  // Not svcntb(): the compiler may move it before the question whether the processor has it.
  const int length = prctl(PR_SVE_GET_VL);  // -1 where there is none
  if (length < 0 || (length & PR_SVE_VL_LEN_MASK) <= kNeonBytes) return nullptr;
  static const KernelTable table = make_table("sve");
  return &table;
}

}  // namespace ddl
#else
namespace ddl {

const KernelTable* sve_kernels() { return nullptr; }

}  // namespace ddl
#endif
