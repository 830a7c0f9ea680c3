// DDL for programs that initialise MPI themselves and speak its types.
// Use the mpi.h of the MPI that libddl was built with: MPI's types are part of this interface.
#ifndef DDL_MPI_HPP
#define DDL_MPI_HPP

#include <mpi.h>

#include <ddl.hpp>

extern "C" {

// In place over `comm`. Starts the library with `options` if need be (collective over
// MPI_COMM_WORLD then). The types are MPI_FLOAT, MPI_DOUBLE, MPI_INT, MPI_INT32_T, MPI_INT64_T,
// MPI_LONG and MPI_LONG_LONG; the operations MPI_SUM, MPI_PROD, MPI_MIN and MPI_MAX.
// The library keeps its own state with the communicator, and MPI_Comm_free frees it.
DDL_API DDL_Result ddl_allreduce_mpi(const char* options, void* buffer, size_t count,
                                     MPI_Datatype type, MPI_Op op, MPI_Comm comm);
}

#endif
