#include "reduce/kernels_impl.h"

namespace ddl {

const KernelTable& generic_kernels() {
  static const KernelTable table = make_table("generic");
  return table;
}

}  // namespace ddl
