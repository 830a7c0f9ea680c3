#include "base/types.h"

#include "base/error.h"

namespace ddl {

void fail_for_type(DDL_Type type) {
  fail(DDL_ERROR_ARGUMENT, "unknown element type ", static_cast<int>(type),
       "; use one of the DDL_TYPE_ values of ddl.h");
}

const char* name_of(DDL_Type type) {
  switch (type) {
#define DDL_ELEMENT_TYPE(type, name, nbytes, element, nccl) \
  case type:                                                \
    return name;
#include "base/element_types.def"
#undef DDL_ELEMENT_TYPE
  }
  return "unknown type";
}

const char* name_of(DDL_Op op) {
  switch (op) {
    case DDL_OP_SUM:
      return "sum";
    case DDL_OP_PRODUCT:
      return "prod";
    case DDL_OP_MIN:
      return "min";
    case DDL_OP_MAX:
      return "max";
    case DDL_OP_AVERAGE:
      return "average";
  }
  return "unknown operation";
}

}  // namespace ddl
