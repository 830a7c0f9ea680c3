#include "status.h"

namespace ddl_tensorflow {

absl::Status to_status(DDL_Result result, const std::string& what) {
  if (result == DDL_SUCCESS) return absl::OkStatus();
  const std::string sentence = what + ": " + ddl_last_error();
  switch (result) {
    case DDL_ERROR_NOT_INITIALIZED:
      return absl::FailedPreconditionError(sentence);
    case DDL_ERROR_ARGUMENT:
    case DDL_ERROR_MISMATCH:
      return absl::InvalidArgumentError(sentence);
    case DDL_ERROR_TIMEOUT:
    case DDL_ERROR_PEER_LOST:
      return absl::AbortedError(sentence);
    default:
      return absl::InternalError(sentence);
  }
}

}  // namespace ddl_tensorflow
