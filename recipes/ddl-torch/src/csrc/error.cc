#include "error.h"

#include <c10/util/Exception.h>

namespace ddl_torch {

void check(DDL_Result result) {
  if (result == DDL_SUCCESS) return;
  const std::string sentence = std::string("ddl: ") + ddl_last_error();
  C10_THROW_ERROR(DistBackendError, sentence);
}

void refuse(const std::string& sentence) { C10_THROW_ERROR(ValueError, "ddl: " + sentence); }

}  // namespace ddl_torch
