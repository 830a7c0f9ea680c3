#include "error.h"

#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "abi.h"

namespace ddl_jax {
namespace {

thread_local std::string t_sentence;
constexpr std::size_t kMostOfAbi = 1024;  // MPIABI_MAX_ERROR_STRING

}  // namespace

int failed(std::string sentence) {
  t_sentence = std::move(sentence);
  return kError;
}

int result_of(DDL_Result result) {
  return result == DDL_SUCCESS ? MPI_SUCCESS : failed(ddl_last_error());
}

const std::string& last_sentence() { return t_sentence; }

void end_job(const char* where) {
  ddl_abort(1, (std::string(where) + ": " + ddl_last_error()).c_str());
  std::abort();
}

int abi::refuse(const char* function) {
  return failed(std::string(function) + " is not carried by ddl-jax, whose library serves XLA");
}

}  // namespace ddl_jax

using namespace ddl_jax;  // NOLINT: this file ends with the library's face

extern "C" {

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
}
