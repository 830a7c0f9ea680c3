// Runs the collectives of the table: the ranks agree on the call, then the data moves.
#pragma once

#include <cstddef>
#include <memory>

#include "async/request.h"
#include "base/arguments.h"
#include "comm/collective_table.h"

namespace ddl {

class Comm;

// The arguments are checked already. Returns when the result is in place; throws Error.
void run(Comm& comm, const Row& row, const Arguments& args);

// The same, but queues the collective and returns at once.
std::shared_ptr<Request> start(Comm& comm, const Row& row, const Arguments& args);

// Moves data in host memory after the ranks have agreed on the call. There is something to move.
void move_data(Comm& comm, const Row& row, const Arguments& args);

// The call that the ranks compare. It leaves out arguments that the collective does not have.
Call call_of(const Row& row, const Arguments& args);

// The blocks that this rank has in a buffer of a collective with this root.
std::size_t blocks_here(const Comm& comm, const Side& side, int root);

}  // namespace ddl
