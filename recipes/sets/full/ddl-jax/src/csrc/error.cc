#include "error.h"

#include <mpi.h>

#include <cstdlib>
#include <utility>

namespace ddl_jax {
namespace {

thread_local std::string t_sentence;

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

}  // namespace ddl_jax
