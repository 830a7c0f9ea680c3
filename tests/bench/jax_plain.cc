// What MPItrampoline asks for beside MPI's functions, for the peer of bench_jax.py: MPICH as it is.
#include "abi.h"

int ddl_jax::abi::refuse(const char*) { return MPI_ERR_OTHER; }

extern "C" {
extern const int mpiabi_version_major = 2, mpiabi_version_minor = 9, mpiabi_version_patch = 0;
extern const int mpiabi_loaded_version_major = 2, mpiabi_loaded_version_minor = 9,
                 mpiabi_loaded_version_patch = 0;
extern const int mpiwrapper_version_major = 2, mpiwrapper_version_minor = 11,
                 mpiwrapper_version_patch = 0;
void mpiwrapper_export_fortran_constants_(void) {}
int MPIXABI_Query_rocm_support(void) { return 0; }

int MPIABI_Init_thread(int* argc, char*** argv, int, int* provided) {
  return MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
}

// XLA makes its communicators in threads of its own.
int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return MPI_SUCCESS;
}
}
