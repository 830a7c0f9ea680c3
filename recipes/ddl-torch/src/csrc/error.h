// ddl's results as exceptions that torch shows as torch.distributed.DistBackendError.
#pragma once

#include <ddl/ddl.h>

#include <string>

namespace ddl_torch {

// Throws ddl's own sentence unless `result` is DDL_SUCCESS.
void check(DDL_Result result);

// Throws for calls that this backend itself refuses; shown as ValueError.
[[noreturn]] void refuse(const std::string& sentence);

}  // namespace ddl_torch
