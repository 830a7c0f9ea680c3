// The sockets (processor packages) of a host, below which its ranks stand.
#pragma once

#include <string>
#include <vector>

namespace ddl {

// The socket of the cores that this process may run on, as Linux numbers them under `root`/sys; -1
// when it may run on several, or nobody tells.
int own_socket(const std::string& root = "");

// The same sockets, numbered from 0 in the order of their first rank.
std::vector<int> number_sockets(const std::vector<int>& socket_of);

// Whether an allreduce on a host whose ranks are on these sockets (-1: not known) is faster if each
// socket sums its own ranks' data before the others read it. Such sums take less over the links
// between sockets, and more of every rank. So they pay where the host waits for these links, not
// for the ranks. This is calculated for a host alone, with the rates of sockets.cc.
bool pays_by_socket(const std::vector<int>& socket_of);

}  // namespace ddl
