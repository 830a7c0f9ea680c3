// The agreement on sizes that ranks give one by one, before any byte moves.
#pragma once

#include "comm/comm.h"

namespace ddl {

// Collective. Returns when every rank expects what the others send to it; throws Disagreement on
// all ranks if not.
void agree_on_sizes(Comm& comm, const BlockLists& lists);

}  // namespace ddl
