// The processors that a thread may run on.
#pragma once

#include <bitset>

namespace ddl {

using Cpus = std::bitset<1 << 14>;  // by Linux's numbers

// Those of the calling thread; none where Linux does not say.
Cpus own_cpus();

}  // namespace ddl
