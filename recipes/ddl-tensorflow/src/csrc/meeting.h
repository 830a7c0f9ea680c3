// Making a communicator waits for ever for a rank that does not make it; so all ranks say first
// that they are there, by messages whose waits end.
#pragma once

#include "absl/status/status.h"

namespace ddl_tensorflow {

constexpr int kTag = 32001;  // ours: apart from those that users take

// OK on all ranks once all have called it. Else, on all that have, an error that names a rank which
// did not come within the timeout, has gone, or was itself tired of waiting. Once in a life of ddl.
absl::Status meet(int rank, int size);

// Instead of meeting: this rank will not come.
void decline(int rank, int size);

}  // namespace ddl_tensorflow
