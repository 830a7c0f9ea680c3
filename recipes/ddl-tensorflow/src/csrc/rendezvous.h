// The ranks meet before the first operation. Making a communicator would wait for ever for a rank
// that does not make it, so all ranks first say by messages that they are there, and wait no longer
// than the timeout.
#pragma once

#include <ddl/ddl.h>

#include "absl/status/status.h"

namespace ddl_tensorflow {

constexpr int kTag = DDL_TAG_TENSORFLOW;  // of its messages, too: apart from those of users

// OK on all ranks once all have called it. Else, on all that have, an error that names a rank which
// did not come within the timeout, has gone, or was itself tired of waiting. Once in a life of ddl.
absl::Status rendezvous(int rank, int size);

// Tells the others in their rendezvous that this rank will not come.
void decline_rendezvous(int rank, int size);

}  // namespace ddl_tensorflow
