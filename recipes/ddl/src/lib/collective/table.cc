#include "collective/table.h"

#include <iterator>

#include "error.h"

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
#include "collectives.def"
#undef DDL_COLLECTIVE
};

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

}  // namespace ddl
