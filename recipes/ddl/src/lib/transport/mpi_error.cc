#include "transport/mpi_error.h"

#include <mpi.h>

#include "base/error.h"

namespace ddl {

void check_mpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  fail(DDL_ERROR_MPI, what, " failed: ", text);
}

}  // namespace ddl
