"""The libraries that are measured: one file each, and the list of rows."""

from __future__ import annotations

from pathlib import Path

from bench.lab.peers.base import Peer
from bench.lab.peers.ddl import Ddl, ProbedDdl
from bench.lab.peers.gloo import Gloo
from bench.lab.peers.intelmpi import IntelMpi
from bench.lab.peers.mpich import Mpich
from bench.lab.peers.oneccl import OneCcl
from bench.lab.peers.openmpi import OpenMpi

# MPICH's shared memory waits by spinning: two ranks of a host that share a processor take minutes.
NO_SHARED_MEMORY = {"MPIR_CVAR_NOLOCAL": "1"}
# The best of all their algorithms at racks-2x4, sorted, 4 MiB; MPICH's best is its default.
RING = {"coll_tuned_use_dynamic_rules": "1", "coll_tuned_allreduce_algorithm": "4"}
RABENSEIFNER = {"I_MPI_ADJUST_ALLREDUCE": "2"}


def every_peer(
    ddl_prefix: Path | None = None,
    mpi_prefix: Path | None = None,
    torch_prefix: Path | None = None,
) -> dict[str, Peer]:
    """All rows by name; libddl is taken from `ddl_prefix`, over the MPICH of `mpi_prefix`."""
    rows: list[Peer] = [
        Ddl(ddl_prefix, mpi_prefix),
        Ddl(ddl_prefix, mpi_prefix, topology=True),
        ProbedDdl(ddl_prefix, mpi_prefix),
        Mpich(),
        Mpich("mpich-tuned", NO_SHARED_MEMORY),
        OpenMpi(),
        OpenMpi("openmpi-han", {"coll_han_priority": "100"}),
        OpenMpi("openmpi-tuned", RING),
        IntelMpi(),
        IntelMpi("intelmpi-tuned", RABENSEIFNER),
        OneCcl(),
        Gloo(torch_prefix),
    ]
    return {peer.name: peer for peer in rows}
