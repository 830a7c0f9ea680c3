"""Intel MPI, from its wheels; a peer in tests only."""

from __future__ import annotations

from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start, hosts_file
from bench.lab.peers.install import compile_worker
from support.pip import pip_prefix


class IntelMpi:
    """Intel MPI's allreduce over the tcp provider of libfabric."""

    def __init__(self, name: str = "intelmpi", env: dict[str, str] | None = None) -> None:
        """A row of this name, with these settings of Intel MPI."""
        self.name = name
        self._env = env or {}

    def prepare(self) -> None:
        """Installs Intel MPI from pip."""
        self._prefix = pip_prefix("intelmpi")
        mpicc = self._prefix / "bin" / "mpicc"
        self._worker = compile_worker("allreduce_mpi.c", self._prefix, mpicc)

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """Its mpiexec; the hosts' file has a line for each rank, in order."""
        command = [f"{self._prefix}/bin/mpiexec.hydra", "-launcher", "rsh"]
        command += ["-launcher-exec", str(lab.launcher), "-iface", DEVICE]
        command += ["-machinefile", hosts_file(lab, [f"{host}:1" for host in hosts])]
        command += ["-n", str(len(hosts)), str(self._worker), *arguments]
        # More ranks than processors: without this it waits by spinning, and starts in 20 s.
        env = {"I_MPI_ROOT": str(self._prefix), "I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "1"}
        env |= {
            "FI_PROVIDER": "tcp",
            "FI_TCP_IFACE": DEVICE,
            "FI_PROVIDER_PATH": f"{self._prefix}/lib",
        }
        # It opens libfabric by its bare name.
        return Start(command, {**env, "LD_LIBRARY_PATH": f"{self._prefix}/lib", **self._env})
