"""libddl, from an installed prefix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from bench.environment import built
from bench.lab.layout import topology_yaml
from bench.lab.network import Lab
from bench.lab.peers.base import DEVICE, CannotStart, Probe, Start
from bench.lab.peers.install import compile_worker
from bench.lab.peers.mpich import FABRIC, hydra
from bench.lab.probed import differences
from bench.lab.run import run_on
from support.pip import Unavailable

PROBE_LIMIT = 60.0
"""Seconds after which a probe is killed."""


def topology_file(lab: Lab) -> Path:
    """A topology file of the lab as it is."""
    file = lab.folder / "topology.yaml"
    file.write_text(topology_yaml(lab.layout))
    return file


def start_told(
    lab: Lab,
    mpi: Path,
    hosts: list[str],
    worker: list[str],
    options: str = "",
    file: Path | None = None,
) -> Start:
    """MPICH's mpiexec; libddl is told these DDL_OPTIONS, and the layout or what `file` says."""
    started = hydra(lab, mpi, hosts, worker)
    told = f"-topology {file or topology_file(lab)} {options}".rstrip()
    return Start(started.command, {**started.env, "DDL_OPTIONS": told})


def start_ddlrun(lab: Lab, prefix: Path, words: list[str], env: dict[str, str]) -> Start:
    """The prefix's ddlrun on the lab's hosts, with the words of a command line."""
    command = [str(prefix / "bin" / "python"), "-m", "ddl.launch.cli"]
    command += ["-mpiarg", f"-iface {DEVICE}", *words]
    path = f"{lab.tools}:{prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return Start(command, {**FABRIC, "PATH": path, **env})


def run_probe(lab: Lab, prefix: Path, hosts: list[str]) -> tuple[Path, Probe]:
    """`ddlrun -probe` on these hosts, one rank on each; its file, and what it is worth.

    Raises:
        CannotStart: it failed.
    """
    file = lab.folder / "probed.yaml"
    words = ["-probe", str(file), "-H", ",".join(dict.fromkeys(hosts))]
    started = start_ddlrun(lab, prefix, words, {})
    # Before other load of the machine, as the workers are while they measure.
    first = ["sh", "-c", 'chrt --rr --pid 1 $$ || true; exec "$@"', "sh", *started.command]
    outcome = run_on(lab, "h0", first, started.env, PROBE_LIMIT)
    if outcome.code or not file.exists():
        said = (outcome.stderr or outcome.stdout).strip().splitlines() or ["no message"]
        raise CannotStart(f"ddlrun -probe: {said[0][:200]}")
    wrong = differences(lab.layout, file.read_text())
    return file, Probe(outcome.seconds, tuple(wrong))


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


class ProbedDdl(Ddl):
    """libddl that is told what `ddlrun -probe` has found."""

    def __init__(self, prefix: Path | None = None, mpi: Path | None = None) -> None:
        """The row `ddl-probe`; its ddlrun is that of the prefix."""
        super().__init__(prefix, mpi)
        self.name = "ddl-probe"

    def start(self, lab: Lab, hosts: list[str], arguments: list[str]) -> Start:
        """The probe, then MPICH's mpiexec with the probe's file."""
        file, probe = run_probe(lab, self._prefix, hosts)
        worker = [str(self._worker), *arguments]
        started = start_told(lab, self._mpi, hosts, worker, file=file)
        return replace(started, probe=probe)
