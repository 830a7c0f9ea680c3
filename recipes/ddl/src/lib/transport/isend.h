// MPI_Isend that returns. MPICH's waits inside, for ever if need be, while the network does not
// take the message: as long as a connection cannot be made (the other side is dead, or was stopped
// before it was ever spoken to), or is full. Elsewhere this is MPI_Isend.
#pragma once

#include <mpi.h>

namespace ddl {

// Once for a communicator that try_isend is used on.
void prepare_isend(MPI_Comm comm);

// Says whether the message is under way, else it is to be tried again later: then messages with the
// same rank must wait behind it. Throws DDL_ERROR_MPI.
bool try_isend(const void* buffer, int nbytes, int rank, int tag, MPI_Comm comm,
               MPI_Request* request);

}  // namespace ddl
