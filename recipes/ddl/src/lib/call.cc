#include "call.h"

#include "collective/table.h"
#include "error.h"
#include "types.h"

namespace ddl {
namespace {

bool is_fused(const Call& call) {
  return call.collective == Collective::kAllreduce && call.fusion != 0;
}

}  // namespace

std::size_t bytes_of(const Call& call, int ranks) {
  const Row& row = row_of(call.collective);
  const bool has_more = row.send.blocks == Blocks::kPerRank || row.recv.blocks == Blocks::kPerRank;
  const std::size_t blocks = has_more ? ranks : 1;
  return call.count * row.width(static_cast<DDL_Type>(call.type)) * blocks;
}

std::string describe(const Call& call) {
  const Row& row = row_of(call.collective);
  if (row.unit == Unit::kNothing) return concat(row.name, "()");
  std::string text = concat(row.name, "(", call.count);
  if (row.unit == Unit::kElements) {
    text += concat(" x ", name_of(static_cast<DDL_Type>(call.type)), ", ",
                   name_of(static_cast<DDL_Op>(call.op)));
  } else {
    text += " bytes";
  }
  if (row.has_root) text += concat(", root ", call.root);
  if (is_fused(call)) text += ", fused";
  return text + (call.is_on_device ? ", on a GPU)" : ")");
}

}  // namespace ddl
