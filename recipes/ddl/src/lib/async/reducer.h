// How a queue's allreduces are carried out. A communicator has a reducer, but does not know which:
// collective/fusion.cc makes it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "async/request.h"
#include "base/arguments.h"

namespace ddl {

class Comm;

class Reducer {
 public:
  virtual ~Reducer() = default;

  // Carries out some of the first operations of `queued`, which are one Group, and returns an
  // outcome for each of these. All ranks carry out the same number.
  virtual std::vector<Outcome> run(const std::vector<Arguments>& queued) = 0;

  // The operations that travelled together with others, and the messages that carried them.
  virtual std::uint64_t num_requests() const = 0;
  virtual std::uint64_t num_messages() const = 0;
};

// Messages have at most `max_bytes`; `comm` must outlive the reducer.
std::unique_ptr<Reducer> make_reducer(Comm& comm, std::size_t max_bytes);

}  // namespace ddl
