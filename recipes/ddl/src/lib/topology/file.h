// The topology file: YAML, read by rank 0 or by tools.
//
//   name: cluster
//   children:
//   - name: rack0
//     bandwidth: 100        # Gbit/s each way, of the link to the parent; absent: not known
//     latency: 2            # us, likewise
//     children:
//     - host: node[01-18]   # 18 hosts, each with its own link
//       bandwidth: 25
//       sockets: 2          # the host's ranks, in order, are spread over so many; absent: as Linux
//                           # tells of the cores that each is bound to
#pragma once

#include <string>

#include "topology/tree.h"

namespace ddl {

// `source` names the text in messages. Leaves have no host index yet: see assign_hosts. Throws
// DDL_ERROR_ARGUMENT with "source:line: what is wrong".
Node parse_topology(const std::string& text, const std::string& source);

// The part of `tree` that the job uses: host_names[i] becomes host i. A name in the file may be the
// short form of the host's. Throws DDL_ERROR_ARGUMENT when the file does not have a host.
Node assign_hosts(const Node& tree, const std::vector<std::string>& host_names,
                  const std::string& source);

}  // namespace ddl
