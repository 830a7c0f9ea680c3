// Barrier: when all ranks have agreed on the call, all have come.
#include "comm/collective_table.h"

namespace ddl {

constexpr Row kBarrierRow = [] {
  Row row;
  row.collective = Collective::kBarrier;
  row.name = "barrier";
  row.async_name = "ibarrier";
  row.check = [](const char*, const Comm&, const Arguments&) {};
  return row;
}();

}  // namespace ddl
