// The same loops for any processor of the platform. Others are chosen where the processor has more.
#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable& generic_kernels() {
  static const KernelTable table = make_table("generic");
  return table;
}

}  // namespace ddl
