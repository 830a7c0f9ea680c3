#include "comm/collective_table.h"

#include <iterator>

#include "base/error.h"
#include "base/types.h"

namespace ddl {
namespace {

constexpr Row name_only(const char* name) {
  Row row;
  row.name = name;
  return row;
}

constexpr Row kNoRow = name_only("nothing");
constexpr Row kUnknownRow = name_only("an unknown collective");

// In the order of the enumeration.
constexpr const Row* kRows[] = {
    &kNoRow,
#define DDL_COLLECTIVE(Name) &k##Name##Row,
#include "base/collectives.def"
#undef DDL_COLLECTIVE
};

bool is_fused(const Call& call) {
  return call.collective == Collective::kAllreduce && call.fusion != 0;
}

}  // namespace

constexpr Row kFinalizeRow = [] {
  Row row = name_only("finalize");
  row.collective = Collective::kFinalize;
  return row;
}();

constexpr Row kIallreduceRow = [] {
  Row row = name_only("iallreduce");
  row.collective = Collective::kIallreduce;
  row.unit = Unit::kElements;
  return row;
}();

const Row& row_of(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  return index < std::size(kRows) ? *kRows[index] : kUnknownRow;
}

const Row& find_row(const std::string& name) {
  for (const Row* row : kRows) {
    if (row->check != nullptr && name == row->name) return *row;
  }
  fail(DDL_ERROR_ARGUMENT, "there is no collective '", name, "'");
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
  if (call.is_on_device) text += ", on a GPU";
  return text + (call.is_on_device == Call::kCaptured ? ", for a CUDA graph)" : ")");
}

std::size_t bytes_of(const Call& call, int ranks) {
  const Row& row = row_of(call.collective);
  const bool has_more = row.send.blocks == Blocks::kPerRank || row.recv.blocks == Blocks::kPerRank;
  const std::size_t blocks = has_more ? ranks : 1;
  return call.count * row.width(static_cast<DDL_Type>(call.type)) * blocks;
}

}  // namespace ddl
