// MPI_Isend that returns. MPICH's MPI_Isend waits, for ever if need be, while the network does not
// take the message. This happens while a connection is full, or cannot be made because the other
// side is dead or was stopped early. With other MPIs, this is MPI_Isend.
#pragma once

#include <mpi.h>

namespace ddl {

// Called once for a communicator that try_isend is used on.
void prepare_isend(MPI_Comm comm);

// Says whether the message is under way, else it is to be tried again later: then messages with the
// same rank must wait behind it. Throws DDL_ERROR_MPI.
bool try_isend(const void* buffer, int nbytes, int rank, int tag, MPI_Comm comm,
               MPI_Request* request);

}  // namespace ddl
