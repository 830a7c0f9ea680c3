// ddl's results as TensorFlow's statuses.
#pragma once

#include <ddl/ddl.h>

#include <string>

#include "absl/status/status.h"

namespace ddl_tensorflow {

// OK, or an error whose message is `what` and ddl's own sentence of this thread.
absl::Status to_status(DDL_Result result, const std::string& what);

}  // namespace ddl_tensorflow
