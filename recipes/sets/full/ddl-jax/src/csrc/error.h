// Errors on their way to XLA, which gets a code and asks MPI_Error_string for its sentence.
#pragma once

#include <ddl/ddl.h>

#include <string>

namespace ddl_jax {

// The code of every error of ours: none that MPI gives, and its class is MPI_ERR_OTHER.
constexpr int kError = 0x6464'6c01;

// Keeps the sentence for this thread, which asks for it next.
int failed(std::string sentence);
// MPI_SUCCESS, or ddl's own sentence.
int result_of(DDL_Result result);
const std::string& last_sentence();

// Ends the job with ddl's last sentence, where XLA would ignore a code and go on.
[[noreturn]] void end_job(const char* where);

}  // namespace ddl_jax
