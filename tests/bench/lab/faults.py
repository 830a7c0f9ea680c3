"""One fault in the lab: random collectives, and then something happens to a rank or its host.

The ranks run the programs of libddl's own tests, started by ddlrun: `storm.py`, alone or under
`survive.py`, which keeps the launcher from ending the ranks before they have told their errors.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench.lab.layout import Layout, rank_order
from bench.lab.namespaces import wait_until
from bench.lab.network import Lab, bring_up
from bench.lab.peers.ddl import start_ddlrun, topology_file
from bench.lab.run import GRACE, Outcome, run_on

PROGRAMS = Path(__file__).parents[3] / "recipes" / "ddl" / "tests" / "ranks" / "programs"
WAYS = ("cut", "stop", "kill")
RUN_TIMEOUT_S = 60.0
"""Seconds that ranks have to begin, and after the fault to tell."""
UNREACHED = 40.0
"""Seconds that a host has to clear up by itself when it is cut off from ddlrun; the wrapper of a
rank gives mpiexec 30 s to come for it."""
REPORT = re.compile(r"rank \d+: (\w+)(?: after \d+ calls)?, (-?[\d.]+) s late: (.*)", re.DOTALL)
ENDED = re.compile(r"^(?:\[\S+\] )?\[ddl\] MPI ends rank (\d+) \(host \S+\): (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """What became of it.

    Attributes:
        layout: the layout's name.
        way: what happened to the last rank: its host's cable is cut, it is stopped or killed.
        seed: of the collectives, the moment and the ranks' order.
        timeout: libddl's, in seconds.
        late: the seconds from the fault until each survivor had its error.
        silent: survivors without an error.
        unnamed: survivors whose error does not name a lost rank, and what it says.
        codes: the kinds of errors.
        said: ddlrun's first words when it is alone with the fault.
        lingered: the seconds for which other processes were there after ddlrun.
        orphans: processes that did not end by themselves.
        left: files of libddl that were left in the hosts' shared memory.
        left_by_mpi: files of MPICH there.
        failure: why there is nothing of this, or "".
    """

    layout: str
    way: str
    seed: int
    timeout: float
    late: tuple[float, ...] = ()
    silent: tuple[int, ...] = ()
    unnamed: tuple[str, ...] = ()
    codes: tuple[str, ...] = ()
    said: str = ""
    lingered: float = 0
    orphans: int = 0
    left: tuple[str, ...] = ()
    left_by_mpi: tuple[str, ...] = ()
    failure: str = ""


def placed(layout: Layout, seed: int) -> list[str]:
    """The host of each rank: a random order, whose last is not where the launcher is."""
    hosts = [f"h{host}" for host in rank_order(layout, f"random:{seed}")]
    return hosts if hosts[-1] != "h0" else hosts[::-1]


def lost_ranks(hosts: list[str], way: str) -> set[int]:
    """The ranks that a fault takes: with a cable, all of the host."""
    last = len(hosts) - 1
    return (
        {rank for rank, host in enumerate(hosts) if host == hosts[-1]} if way == "cut" else {last}
    )


def told(folder: Path) -> dict[int, str]:
    """What ranks have left in files of their numbers."""
    return {int(file.name): file.read_text() for file in folder.glob("[0-9]*")}


def told_at_end(outcome: Outcome, fault: Path, ended: Path) -> dict[int, str]:
    """The last words of ranks that MPI has ended, as if they had reported them.

    Args:
        fault: the file that was made at the moment of the fault.
        ended: the folder with a file for each rank that was made when it had ended.
    """
    found = {}
    for rank, words in ENDED.findall(outcome.stderr):
        late = (ended / rank).stat().st_mtime - fault.stat().st_mtime
        found[int(rank)] = f"rank {rank}: ENDED_BY_MPI, {late:.1f} s late: {words}"
    return found


def judge(reports: dict[int, str], hosts: list[str], way: str) -> dict[str, Any]:
    """`late`, `silent`, `unnamed` and `codes` of a Fault."""
    lost = lost_ranks(hosts, way)
    names = re.compile(rf"\brank ({'|'.join(map(str, sorted(lost)))})\b")
    late, silent, unnamed, codes = [], [], [], set()
    for rank in sorted(set(range(len(hosts))) - lost):
        found = REPORT.match(reports.get(rank, ""))
        if not found:
            silent.append(rank)
            continue
        codes.add(found[1])
        late.append(float(found[2]))
        if not names.search(found[3]):
            unnamed.append(f"rank {rank}: {found[3].strip()[:300]}")
    return {
        "late": tuple(late),
        "silent": tuple(silent),
        "unnamed": tuple(unnamed),
        "codes": tuple(sorted(codes)),
    }


def end_stopped(lab: Lab) -> None:
    """Kills the processes that are stopped."""
    for pid in lab.left_over():
        with suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
                os.kill(pid, signal.SIGKILL)


@dataclass
class Job:
    """A storm under ddlrun, with a fault in it.

    Attributes:
        lab: where.
        prefix: an environment with ddl.
        hosts: of each rank.
        way: what happens to the last.
        seed: of the collectives and of the moment.
        timeout: libddl's.
    """

    lab: Lab
    prefix: Path
    hosts: list[str]
    way: str
    seed: int
    timeout: float

    def run(self, survive: bool) -> tuple[Outcome, dict[int, str]]:
        """Runs it; returns what became of it, and what ranks have reported.

        Args:
            survive: ranks outlive their errors until all have told theirs, and the fault then ends;
                else the job is ddlrun's alone, and a cable that was cut remains so.
        """
        reports = self.lab.folder / f"reports-{survive:d}"
        ended = self.lab.folder / "ended"
        reports.mkdir()
        ended.mkdir(exist_ok=True)
        python = str(self.prefix / "bin" / "python")
        storm = [str(PROGRAMS / "storm.py"), self.way, str(self.seed), str(reports)]
        words = [python, *([str(PROGRAMS / "survive.py")] if survive else []), *storm]
        ranks = self.lab.folder / "ranks"
        ranks.write_text("".join(f"rank {n}={host}\n" for n, host in enumerate(self.hosts)))
        options = ["-H", ",".join(self.lab.names), "-rankfile", str(ranks), "-no_bind"]
        options += ["-topology", str(topology_file(self.lab))]
        options += ["-ddlarg", f"-timeout {self.timeout:g}", *words]
        started = start_ddlrun(self.lab, self.prefix, options, {"SURVIVE": str(ended)})
        helper = threading.Thread(target=self._help, args=(reports, ended, survive), daemon=True)
        helper.start()
        grace = UNREACHED if self.way == "cut" and not survive else GRACE
        outcome = run_on(self.lab, "h0", started.command, started.env, RUN_TIMEOUT_S, grace)
        helper.join()
        # Without survive.py nobody writes down when a rank has ended.
        last_words = told_at_end(outcome, reports / "fault", ended) if survive else {}
        return outcome, last_words | told(reports)

    def _help(self, reports: Path, ended: Path, survive: bool) -> None:
        """Cuts the cable when storm.py says so; ends the fault when the others have reported."""
        if self.way == "cut" and wait_until((reports / "fault").exists, RUN_TIMEOUT_S / 2):
            self.lab.cut(self.hosts[-1])
        if survive:
            # Those behind a cut cable have an error too.
            lost = 0 if self.way == "cut" else 1
            enough = len(self.hosts) - lost
            wait_until(
                lambda: len(told(reports).keys() | told(ended).keys()) >= enough, RUN_TIMEOUT_S / 2
            )
            if self.way == "cut":
                self.lab.restore(self.hosts[-1])  # mpiexec waits for its proxies
            if self.way == "stop":
                end_stopped(self.lab)


def run_fault(layout: Layout, prefix: Path, way: str, seed: int, timeout: float) -> Fault:
    """One fault twice: with ranks that tell what they see, and with ddlrun alone."""
    fault = Fault(layout.name, way, seed, timeout)
    with bring_up(layout) as lab:
        job = Job(lab, prefix, placed(layout, seed), way, seed, timeout)
        outcome, reports = job.run(survive=True)
        if outcome.code is None or not reports:
            words = (outcome.stderr or outcome.stdout).strip().splitlines() or ["no message"]
            return replace(fault, failure=f"exit {outcome.code}: {words[0][:200]}")
        fault = replace(fault, **judge(reports, job.hosts, way))
        left = lab.shared_memory()
    with bring_up(layout) as lab:
        outcome, _ = replace(job, lab=lab).run(survive=False)
        left += lab.shared_memory()
    said = [line for line in outcome.stderr.splitlines() if line.startswith("ddlrun: ")]
    if outcome.code is None:
        fault = replace(fault, failure=f"ddlrun has not ended after {RUN_TIMEOUT_S:g} s")
    return replace(
        fault,
        said=said[0] if said else outcome.stderr.strip()[-200:],
        lingered=outcome.lingered,
        orphans=outcome.orphans,
        left=tuple(name for name in left if "/mpich_" not in name),
        left_by_mpi=tuple(name for name in left if "/mpich_" in name),
    )
