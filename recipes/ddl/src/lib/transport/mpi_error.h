// MPI's error codes as the library's exceptions.
#pragma once

namespace ddl {

// Throws DDL_ERROR_MPI with MPI's own words when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* what);

}  // namespace ddl
