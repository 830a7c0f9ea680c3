#include "collective/divisors.h"

namespace ddl {

Divisors::Divisors(int ranks, const Arguments& args) {
  if (args.op != DDL_OP_AVERAGE) return;
  const bool is_16_bit = args.type == DDL_TYPE_HALF || args.type == DDL_TYPE_BFLOAT16;
  while (is_16_bit && first < ranks) first *= 2;
  last = ranks / first;
}

}  // namespace ddl
