"""Allreduce on one host: libddl beside other libraries, and what the memory allows.

    python tests/bench/bench_host.py
    python tests/bench/bench_host.py --ranks 2 --sizes 64K 16M --peers ddl intelmpi

Repetitions take turns over the libraries; a cell is the median of the repetitions' medians. What
counts is what a library did while the two processors were near (`distance.py`); for sizes of which
that is too little, further turns are made. Prints a line for each run, then for each number of
ranks a table: microseconds per call in place, for two ranks beside two limits; then, to compare,
the same of what was done while the processors were far, if they were. `copy`: every rank reads and
writes its buffer once; `exchange`: through memory that stays in the caches, it reads as much from
the other, who has just written it. Ranks that share memory but not their buffers do both, so a
library at "of both" 100% is at the limit but for what the processor can do at the same time. Gloo
is that of PyTorch. A run over --limit is killed, and the sizes that it had not done are left out.
Writes all of it as JSON; ends with 1 and names each row of libddl that falls short of the bar
(bar.md).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.check import missed
from bench.command import asker, end, parse_size, run_command, write_report
from bench.distance import MORE_TURNS, Batch, Distances, Watch, watch
from bench.environment import built
from bench.lab.bar_host import BEYOND_CACHES, Medians, host_checks
from bench.lab.peers.gloo import python_with_torch
from bench.lab.peers.install import LAB, compile_worker
from bench.lab.peers.oneccl import oneccl_worker
from support.pip import Unavailable, pip_prefix

HERE = Path(__file__).parent
SIZES = [4, 64, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
LIMITS = ["copy", "exchange"]
NAMES = ["ddl", "intelmpi", "oneccl", "openmpi", "mpich", "gloo", *LIMITS]
INTEL = {"I_MPI_FABRICS": "shm"}
# A limit is not to be one of glibc's: on AMD's processors, "rep movsb" takes many times as long for
# some alignments (its bug 30994).
PLAIN_COPIES = {"GLIBC_TUNABLES": f"glibc.cpu.x86_rep_movsb_threshold={1 << 40}"}
OPENMPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
}

LEAST_BATCHES = 3
"""So many of a repetition give a median."""

Times = dict[tuple[int, int, str], list[float]]
"""Seconds of each repetition, by ranks, bytes and library."""


class Library:
    """How a library's worker is started on this host."""

    def __init__(self, name: str, start: list[str], worker: str, env: dict[str, str]) -> None:
        """`start` and the number of ranks go before the worker, if one is named."""
        self.name = name
        self._start = start
        self._worker = worker
        self._env = env

    def run(
        self, ranks: int, seconds: float, sizes: list[int], limit: float
    ) -> tuple[dict[int, list[Batch]], str]:
        """The batches of each size that it was done with, and how it ended.

        Raises:
            RuntimeError: a wrong sum.
        """
        command = [*self._start, str(ranks), *filter(None, [self._worker]), "host", str(seconds)]
        process = subprocess.Popen(
            [*command, *map(str, sizes)],
            env=os.environ | self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            process_group=0,
        )
        try:
            out, _ = process.communicate(timeout=limit)
            ended = f"ended with {process.returncode}" if process.returncode else "done"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 15)
            out, _ = process.communicate()
            ended = f"not done in {limit:g} s"
        found = {}
        for line in out.splitlines():
            if line.startswith('{"bytes"') and line.endswith("}"):
                report = json.loads(line)
                if report["wrong"]:
                    raise RuntimeError(f"{self.name}: {report['wrong']} elements are wrong")
                found[report["bytes"]] = [Batch(*batch) for batch in report["batches"]]
        return found, ended


def mpiexec(prefix: Path) -> list[str]:
    """What starts ranks by the MPI of a prefix; their number follows."""
    hydra = prefix / "bin" / "mpiexec.hydra"
    return [str(hydra if hydra.exists() else prefix / "bin" / "mpiexec"), "-n"]


def make(
    name: str, ddl_prefix: Path | None, mpi_prefix: Path | None, torch_prefix: Path | None
) -> Library:
    """Installs and compiles.

    Raises:
        Unavailable: it cannot be had here.
        ValueError: an unknown name.
    """
    if name in ("ddl", *LIMITS):
        prefix = (ddl_prefix or built()).resolve()
        mpi = (mpi_prefix or prefix).resolve()
        source, options = ("allreduce_ddl.c", ["-lddl"]) if name == "ddl" else (f"{name}.c", [])
        worker = compile_worker(source, prefix, mpi / "bin" / "mpicc", *options)
        env = {} if name == "ddl" else PLAIN_COPIES
        return Library(name, mpiexec(mpi), str(worker), env)
    if name == "gloo":
        start = [str(python_with_torch(torch_prefix)), str(LAB / "workers" / "host_gloo.py")]
        return Library(name, start, "", {})
    if name == "oneccl":
        prefix, worker, env = oneccl_worker()
        env = {**INTEL, "I_MPI_ROOT": str(prefix), **env}
        return Library(name, mpiexec(prefix), str(worker), env)
    if name not in ("mpich", "openmpi", "intelmpi"):
        raise ValueError(f"library {name}: not one of {', '.join(NAMES)}")
    prefix = pip_prefix(name)
    worker = compile_worker("allreduce_mpi.c", prefix, prefix / "bin" / "mpicc")
    intel = {**INTEL, "I_MPI_ROOT": str(prefix), "LD_LIBRARY_PATH": f"{prefix}/lib"}
    env = {"mpich": {}, "openmpi": OPENMPI, "intelmpi": intel}[name]
    return Library(name, mpiexec(prefix), str(worker), env)


def medians_of(times: Times) -> Medians:
    """Those of the repetitions' medians, where there are any."""
    return {key: statistics.median(found) for key, found in times.items() if found}


def table_of(ranks: int, times: Medians, names: list[str], state: str = "near") -> Table:
    """Microseconds per call, and libddl's share of what memory and caches allow."""
    table = Table(title=f"{ranks} ranks on one host, the processors being {state}: us per call")
    for column in ("bytes", *names, "ddl/best peer", "of copy", "of both"):
        table.add_column(column, justify="right")
    for nbytes in sorted({size for n, size, _ in times if n == ranks}):
        found = {name: times.get((ranks, nbytes, name)) for name in names}
        cells = [f"{t * 1e6:.1f}" if t else "-" for t in found.values()]
        ours, copy, exchange = (found.get(name) for name in ("ddl", *LIMITS))
        peers = [t for name, t in found.items() if t and name not in ("ddl", *LIMITS)]
        ratio = f"{min(peers) / ours:.2f} x" if ours and peers else "-"
        alone = f"{copy / ours:.0%}" if ours and copy and nbytes >= BEYOND_CACHES else "-"
        both = "-"
        if ours and copy and exchange and nbytes >= 64 << 10:  # below, it is all latency
            both = f"{(copy + exchange) / ours:.0%}"
        table.add_row(str(nbytes), *cells, ratio, alone, both)
    return table


class Runs:
    """What was measured, repetition by repetition."""

    def __init__(self, asked: argparse.Namespace, libraries: list[Library]) -> None:
        """All libraries and sizes are to be measured; a size that takes too long, once."""
        self._asked = asked
        self._libraries = libraries
        self._late: set[tuple[int, int, str]] = set()
        self._batches: dict[tuple[int, int, str], list[list[Batch]]] = {}

    def measure(self, ranks: int, watched: Watch) -> None:
        """Turns over the libraries, until all sizes have been measured often enough."""
        for turn in range(self._asked.repetitions * (1 + MORE_TURNS)):
            near = self.times(watched.so_far())[0] if self._batches else {}
            wanted = {each: self._wanted(ranks, each.name, near) for each in self._libraries}
            if not any(wanted.values()):
                return
            for library, sizes in wanted.items():
                if sizes:
                    print(f"{ranks} ranks, turn {turn + 1}: {library.name}: ", end="", flush=True)
                    print(self._run(ranks, library, sizes), flush=True)

    def times(self, distances: Distances) -> tuple[Times, Times]:
        """The repetitions' medians with near processors, and with far ones; where there are any.

        Which is which, later samples can tell better: the first may all be of the far state.
        """
        near: Times = {}
        far: Times = {}
        for key, repetitions in self._batches.items():
            for batches in repetitions:
                for times, calls in zip((near, far), distances.split(batches), strict=True):
                    medians = times.setdefault(key, [])
                    if len(calls) >= LEAST_BATCHES:
                        medians.append(statistics.median(calls))
        return near, far

    def _wanted(self, ranks: int, name: str, near: Times) -> list[int]:
        """The sizes of which a library has not repetitions enough."""
        if name in LIMITS and ranks != 2:
            return []  # their barrier spins; with more, a library can do with less exchange
        return [
            nbytes
            for nbytes in self._asked.sizes
            if (ranks, nbytes, name) not in self._late
            and len(near.get((ranks, nbytes, name), [])) < self._asked.repetitions
        ]

    def _run(self, ranks: int, library: Library, sizes: list[int]) -> str:
        """One run; what to say of it."""
        found, ended = library.run(ranks, self._asked.seconds, sizes, self._asked.limit)
        for nbytes, batches in found.items():
            self._batches.setdefault((ranks, nbytes, library.name), []).append(batches)
        self._late |= {(ranks, nbytes, library.name) for nbytes in sizes if nbytes not in found}
        return f"{ended}, {len(found)} of {len(sizes)} sizes"


def main() -> None:
    """Runs, prints, writes, compares with the bar."""
    ask = asker(__doc__)
    ask.add_argument("--ranks", nargs="+", type=int, default=[2, 4])
    ask.add_argument("--sizes", nargs="+", type=parse_size, default=SIZES)
    ask.add_argument("--peers", nargs="+", default=NAMES)
    ask.add_argument("--repetitions", type=int, default=3)
    ask.add_argument("--seconds", type=float, default=0.3, help="for a size, in a repetition")
    ask.add_argument("--limit", type=float, default=30, help="for a run, which is then killed")
    ask.add_argument("--ddl-prefix", type=Path, help="where libddl is; default: the built env")
    ask.add_argument("--mpi-prefix", type=Path, help="the MPICH under it; default: the same")
    ask.add_argument("--torch-prefix", type=Path, help="for Gloo; default: the built env")
    ask.add_argument("--out", type=Path, default=HERE / "out" / "host.json")
    asked = ask.parse_args()
    libraries = []
    for name in asked.peers:
        try:
            libraries.append(make(name, asked.ddl_prefix, asked.mpi_prefix, asked.torch_prefix))
        except Unavailable as error:
            print(f"{name}: unavailable: {error}")
    runs = Runs(asked, libraries)
    with watch() as watched:
        for ranks in asked.ranks:
            runs.measure(ranks, watched)
        near_times, far_times = runs.times(watched.so_far())
    near, far = medians_of(near_times), medians_of(far_times)
    names = [library.name for library in libraries]
    for ranks in asked.ranks:
        Console(width=130).print(table_of(ranks, near, names))
    for ranks in sorted({n for n, _, _ in far}):
        Console(width=130).print(table_of(ranks, far, names, "far"))
    rows = [
        {"ranks": n, "bytes": size, "library": name, "seconds": found, "far": far_times[key]}
        for key, found in near_times.items()
        for n, size, name in [key]
    ]
    write_report(asked.out, asked, cells=rows)
    end(missed(host_checks(near)))


if __name__ == "__main__":
    run_command(main)
