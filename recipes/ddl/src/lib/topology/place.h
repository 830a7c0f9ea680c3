// The place of a host in its cluster, as the site, Kubernetes or Slurm tells the host.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "topology/tree.h"

namespace ddl {

constexpr std::size_t kMaxPlace = 255;  // characters

// The groups that this host is in, the widest first: "row1/rack3"; "" when nobody tells. From
// DDL_PLACE, else the first line of /etc/ddl/place (DDL_PLACE_FILE names another file), else
// Slurm's SLURM_TOPOLOGY_ADDR (srun's manual page: "switch.switch.node").
std::string own_place();

// Hosts of one group side by side, groups in the order of their first host; a host that is in none
// stands beside the groups. Throws DDL_ERROR_ARGUMENT for a place that is no such path.
Node tree_of_places(const std::vector<std::string>& host_names,
                    const std::vector<std::string>& places);

}  // namespace ddl
