#include "collective/divisors.h"

namespace ddl {

Divisors::Divisors(int ranks, DDL_Type type, DDL_Op op) {
  if (op != DDL_OP_AVERAGE) return;
  const bool is_16_bit = type == DDL_TYPE_HALF || type == DDL_TYPE_BFLOAT16;
  while (is_16_bit && first < ranks) first *= 2;
  last = ranks / first;
}

}  // namespace ddl
