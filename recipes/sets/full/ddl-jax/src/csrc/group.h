// XLA's communicators: the same ranks as a communicator of ddl and as one of MPI.
#pragma once

#include <ddl/ddl.h>
#include <mpi.h>

#include <vector>

#include "abi.h"

namespace ddl_jax {

// An all-to-all as XLA makes it: one MPI_Sendrecv after another, with the next rank and the one
// before, then with those at distance 2, and so on. Only the last of them moves anything.
struct Exchange {
  std::vector<const void*> send;
  std::vector<void*> recv;
  std::size_t nbytes = 0;
};

struct Group {
  MPI_Comm mpi;
  ddl_comm_t ddl;
  int rank;
  int size;
  Exchange exchange;
};

// The group that a handle of XLA's stands for, or null for any other communicator.
Group* find_group(abi::Handle comm);

// Starts the communicator by which ranks tell each other about new groups.
void start_groups();

}  // namespace ddl_jax
