"""libddl, from an installed prefix."""

from __future__ import annotations

from pathlib import Path

from bench.lab.layout import topology_yaml
from bench.lab.network import Lab
from bench.lab.peers.base import Start, Unavailable
from bench.lab.peers.install import compile_worker
from bench.lab.peers.mpich import hydra
from ddlce.env.layout import Layout
from ddlce.settings import load_settings


def built() -> Path:
    """The built environment, or where it would be."""
    root = load_settings().root
    return Layout(root).current("ddl-ce") or root / "envs" / "ddl-ce" / "current"


def start_told(
    lab: Lab, mpi: Path, hosts: list[str], worker: list[str], options: str = ""
) -> Start:
    """MPICH's mpiexec; libddl is told the layout, in a topology file, and these DDL_OPTIONS."""
    started = hydra(lab, mpi, hosts, worker)
    file = lab.folder / "topology.yaml"
    file.write_text(topology_yaml(lab.layout))
    told = f"-topology {file} {options}".rstrip()
    return Start(started.command, {**started.env, "DDL_OPTIONS": told})


class Ddl:
    """libddl's allreduce over the MPICH of its prefix."""

    def __init__(
        self,
        prefix: Path | None = None,
        mpi: Path | None = None,
        topology: bool = False,
        schedule: str = "auto",
    ) -> None:
        """libddl of a prefix over the MPICH of another, by default the built environment's.

        Args:
            prefix: where libddl and its headers are.
            mpi: where mpicc and mpiexec are; `prefix`, if they are there.
            topology: tells libddl the layout, in a topology file.
            schedule: with the topology, its word for -schedule.
        """
        self.name = "ddl-topology" if topology else "ddl"
        self._prefix = (prefix or built()).resolve()
        own = (self._prefix / "bin" / "mpicc").exists()
        self._mpi = (mpi or (self._prefix if own else built())).resolve()
        self._topology = topology
        self._schedule = schedule

    def prepare(self) -> None:
        """Compiles the worker."""
        if not (self._prefix / "lib" / "libddl.so").exists():
            raise Unavailable(f"there is no lib/libddl.so in {self._prefix}; run make")
        mpicc = self._mpi / "bin" / "mpicc"
        self._worker = compile_worker("allreduce_ddl.c", self._prefix, mpicc, "-lddl")

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """MPICH's mpiexec."""
        worker = [str(self._worker), *arguments]
        if not self._topology:
            return hydra(lab, self._mpi, hosts, worker)
        return start_told(lab, self._mpi, hosts, worker, f"-schedule {self._schedule}")
