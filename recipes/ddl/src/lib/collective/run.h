// How a collective of the table is run: agreed on by the ranks, then carried out.
#pragma once

#include <cstddef>
#include <memory>

#include "arguments.h"
#include "async/request.h"
#include "collective/table.h"

namespace ddl {

class Comm;

// The arguments are checked already. Returns when the result is in place; throws Error.
void run(Comm& comm, const Row& row, const Arguments& args);

// The same, but queues the collective and returns at once.
std::shared_ptr<Request> start(Comm& comm, const Row& row, const Arguments& args);

// Moves data in host memory after the ranks have agreed on the call. There is something to move.
void move_data(Comm& comm, const Row& row, const Arguments& args);

// What the ranks compare. Arguments that the collective does not have are left out.
Call call_of(const Row& row, const Arguments& args);

// The blocks that this rank has in a buffer of a collective with this root.
std::size_t blocks_here(const Comm& comm, const Side& side, int root);

}  // namespace ddl
