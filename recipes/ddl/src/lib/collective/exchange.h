// Messages between every rank and every other.
#pragma once

#include "comm/comm.h"

namespace ddl {

// Calls post(batch, to, from) for all other ranks and waits. In the order of distance, so that the
// ranks do not all start on the same one.
template <class Post>
void exchange_with_all(Comm& comm, const Post& post) {
  // One tag is enough: MPI keeps the order of two ranks' messages, and all make the same calls.
  Batch batch(comm.transport());
  for (int distance = 1; distance < comm.size(); ++distance) {
    const int to = (comm.rank() + distance) % comm.size();
    const int from = (comm.rank() - distance + comm.size()) % comm.size();
    post(batch, to, from);
  }
  batch.wait();
}

}  // namespace ddl
