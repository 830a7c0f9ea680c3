// Whether the program that started this process made it a rank of MPI.
#pragma once

namespace ddl {

// Throws where this process is the only rank that MPI knows, and a launcher has started it as one
// of several: it speaks another protocol than MPI, or none, and each rank would work alone. Where
// MPI has several ranks, all is well: other launchers' variables tell of the process that started
// mpiexec. `mpi_size` is the size of MPI_COMM_WORLD.
void check_launchers(int mpi_size);

// Whether the launcher has started all ranks on this host. False where it does not say.
bool are_all_ranks_here();

}  // namespace ddl
