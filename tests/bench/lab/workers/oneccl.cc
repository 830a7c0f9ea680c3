// What allreduce_oneccl.c calls.
#include <mpi.h>

#include <cstdio>
#include <memory>
#include <oneapi/ccl.hpp>

namespace {

std::unique_ptr<ccl::communicator> g_world;

}  // namespace

extern "C" {

void oneccl_start(char* library, std::size_t length) {
  ccl::init();
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  // The ranks find each other at an address that the first of them opens.
  ccl::shared_ptr_class<ccl::kvs> store;
  ccl::kvs::address_type address;
  if (rank == 0) {
    store = ccl::create_main_kvs();
    address = store->get_address();
  }
  MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
  if (rank != 0) store = ccl::create_kvs(address);
  g_world = std::make_unique<ccl::communicator>(ccl::create_communicator(size, rank, store));
  std::snprintf(library, length, "oneCCL %s", ccl::get_library_version().full);
}

void oneccl_allreduce(float* data, std::size_t count) {
  ccl::allreduce(data, data, count, ccl::reduction::sum, *g_world).wait();
}

void oneccl_end(void) { g_world.reset(); }
}
