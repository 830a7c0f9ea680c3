// Ranks of a host that get in each other's way: a binding leaves them fewer processors than they
// are, though the host has more.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/cpus.h"

namespace ddl {

struct Oversubscription {
  std::vector<int> ranks;  // of the host, ascending
  Cpus cpus;               // all that they may run on
};

// The most oversubscribed ranks of a host with `online` processors, from each rank's own; none
// where no rank is short of one, and where there are no more to give.
std::optional<Oversubscription> find_oversubscription(const std::vector<Cpus>& cpus_of,
                                                      std::size_t online);

}  // namespace ddl
