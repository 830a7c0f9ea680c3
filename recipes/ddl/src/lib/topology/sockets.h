// The sockets (processor packages) of a host, below which its ranks stand.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// The socket of the cores that this process may run on, as Linux numbers them under `root`/sys; -1
// when it may run on several, or nobody tells.
int own_socket(const std::string& root = "");

// The sockets of a host's ranks, numbered from 0 in the order of their first rank. All 0 where
// summing by socket would not take fewer bytes over the links between them: there each rank reads
// its slice of the sum from all ranks (S/p bytes from each of p, and as many of the result), here
// the slices of the other sockets' sums (every socket all of them). And where one is not known.
std::vector<int> useful_sockets(const std::vector<int>& socket_of);

}  // namespace ddl
