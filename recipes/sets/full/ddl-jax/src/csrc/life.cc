// The library's start and end, and what MPItrampoline looks at when it loads it.
#include <ddl/ddl.h>
#include <mpi.h>

#include <algorithm>
#include <string>

#include "abi.h"
#include "error.h"
#include "group.h"

using namespace ddl_jax;  // NOLINT: this file is nothing but the library's face

int ddl_jax::abi::refuse(const char* function) {
  return failed(std::string(function) + " is not carried by ddl-jax, whose library serves XLA");
}

namespace {

constexpr std::size_t kMostOfAbi = 1024;  // MPIABI_MAX_ERROR_STRING

bool is_ours = false;  // ddl was started by XLA's MPI_Init_thread, so XLA's MPI_Finalize ends it

}  // namespace

extern "C" {

DDL_API extern const int mpiabi_version_major = 2;
DDL_API extern const int mpiabi_version_minor = 9;
DDL_API extern const int mpiabi_version_patch = 0;
DDL_API extern const int mpiabi_loaded_version_major = 2;
DDL_API extern const int mpiabi_loaded_version_minor = 9;
DDL_API extern const int mpiabi_loaded_version_patch = 0;
DDL_API extern const int mpiwrapper_version_major = 2;
DDL_API extern const int mpiwrapper_version_minor = 11;
DDL_API extern const int mpiwrapper_version_patch = 0;

DDL_API void mpiwrapper_export_fortran_constants_(void) {}  // no Fortran program loads this library

DDL_API int MPIABI_Init_thread(int*, char***, int, int* provided) {
  if (!ddl_initialized()) {
    if (ddl_init(nullptr) != DDL_SUCCESS) end_job("the collectives of JAX");
    is_ours = true;
  }
  start_groups();
  return MPI_Query_thread(provided);
}

DDL_API int MPIABI_Init(int* argc, char*** argv) {
  int provided = 0;
  return MPIABI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
}

// Where Python's `ddl.init` came first, its exit function ends ddl.
DDL_API int MPIABI_Finalize(void) {
  if (!is_ours || !ddl_initialized()) return MPI_SUCCESS;
  return result_of(ddl_finalize());
}

// XLA refuses to make communicators in a thread that is not MPI's main one. With
// MPI_THREAD_MULTIPLE, for which ddl asks, every thread may.
DDL_API int MPIABI_Is_thread_main(int* flag) {
  *flag = 1;
  return MPI_SUCCESS;
}

DDL_API int MPIABI_Error_string(int code, char* text, int* length) {
  if (code != kError) return MPI_Error_string(code, text, length);
  const std::size_t size = std::min(last_sentence().size(), kMostOfAbi - 1);
  last_sentence().copy(text, size);
  text[size] = '\0';
  *length = static_cast<int>(size);
  return MPI_SUCCESS;
}

DDL_API int MPIABI_Error_class(int code, int* error_class) {
  if (code != kError) return MPI_Error_class(code, error_class);
  *error_class = MPI_ERR_OTHER;
  return MPI_SUCCESS;
}

DDL_API int MPIXABI_Query_rocm_support(void) { return 0; }
}
