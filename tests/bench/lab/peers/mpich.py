"""MPICH, and what is started by its launcher: libddl over MPICH."""

from __future__ import annotations

from pathlib import Path

from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, Start, hosts_file
from bench.lab.peers.install import compile_worker
from support.pip import pip_prefix

# UCX would find shared memory between "hosts".
FABRIC = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": DEVICE}


def hydra(lab: Lab, prefix: Path, hosts: list[str], worker: list[str]) -> Start:
    """Starts a worker with the mpiexec of an MPICH; one proxy serves all ranks of a host."""
    rank_map = ",".join(str(lab.names.index(host)) for host in hosts)
    command = [f"{prefix}/bin/mpiexec", "-launcher", "rsh", "-launcher-exec", str(lab.launcher)]
    command += ["-iface", DEVICE, "-f", hosts_file(lab, lab.names), "-rankmap", rank_map]
    return Start([*command, "-n", str(len(hosts)), *worker], FABRIC)


class Mpich:
    """MPICH's own allreduce."""

    def __init__(self, name: str = "mpich", env: dict[str, str] | None = None) -> None:
        """A row of this name, with these settings of MPICH."""
        self.name = name
        self._env = env or {}

    def prepare(self) -> None:
        """Installs MPICH from pip."""
        self._prefix = pip_prefix("mpich")
        mpicc = self._prefix / "bin" / "mpicc"
        self._worker = compile_worker("allreduce_mpi.c", self._prefix, mpicc)

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """Its mpiexec, with the tcp provider of libfabric."""
        started = hydra(lab, self._prefix, hosts, [str(self._worker), *arguments])
        return Start(started.command, {**started.env, **self._env})
