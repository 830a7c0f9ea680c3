"""The parts of the suite, one after the other."""

from __future__ import annotations

import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ddl_ce_smoke import __version__, probe
from ddl_ce_smoke.cases import events, job_cases, plural, rank_cases, trained
from ddl_ce_smoke.hosts import judge_hosts
from ddl_ce_smoke.launch import Job, Launcher
from ddl_ce_smoke.links import judge_links
from ddl_ce_smoke.model import (
    Bandwidth,
    Case,
    Link,
    Part,
    Report,
    Throughput,
    with_efficiency,
)
from ddl_ce_smoke.placement import Placement
from ddl_ce_smoke.research.part import research_cases

#: Name and title of each part, in the order in which they run. With several hosts, HOSTS comes
#: before them, whichever of them were asked for.
HOSTS = ("hosts", "the hosts")
PARTS = {
    "links": "the links between hosts",
    "versions": "versions and imports",
    "collectives": "collectives against the exact oracle",
    "training": "distributed training",
    "benchmark": "benchmark",
    "research": "packages of research",
}
#: Parts that take minutes, and packages of which few environments have any.
LONG = ("research",)


@dataclass(frozen=True)
class Options:
    """The user's choices.

    Attributes:
        ranks: rank counts, ascending; None: those that fit the hosts.
        quick: fewer sizes, one rank count to train on: does it work at all?
        timeout: seconds that each run of ddlrun may take.
        parts: names from PARTS.
        placement: where ranks run.
        reference: bytes/s by the name of a link, of an earlier run.
    """

    ranks: list[int] | None
    quick: bool
    timeout: float
    parts: list[str]
    placement: Placement
    reference: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Pass:
    """One pass over the collectives.

    Attributes:
        label: the prefix of the cases' names; empty for the library as it comes.
        environ: the library's own knobs.
    """

    label: str
    via: list[str]
    environ: dict[str, str] = field(default_factory=dict)


#: The knobs bring the borders between pieces, and the way between hosts, within reach of small
#: buffers on one machine.
PASSES = (
    Pass("", ["ddl", "torch:ddl"]),
    Pass("pieces of 4 KiB", ["ddl"], {"DDL_SHM_CHUNK": "4096"}),
    Pass("as on two hosts", ["ddl"], {"DDL_FAKE_HOSTS": "2"}),
    Pass("frameworks", ["horovod", "tensorflow"]),
)


def passes(quick: bool) -> list[Pass]:
    """The passes of this machine; only the first, if it is to be quick."""
    return [
        replace(step, via=[via for via in step.via if probe.exists(via)])
        for step in (PASSES[:1] if quick else PASSES)
    ]


#: Starts a rank program. -P: the current folder, which may be anybody's, is no place to import
#: from. PYTHONPATH stays: where it hides a package, the suite is to say so.
RANK_COMMAND = (sys.executable, "-P", "-m")


class Suite:
    """Runs the parts and fills the report.

    Args:
        environment: the one under test.
        rank_command: put before a rank program's module name; `python -m` of the environment.
        progress: is told when a part begins and when it ends.
    """

    def __init__(
        self,
        options: Options,
        environment: probe.Environment,
        rank_command: Sequence[str] = RANK_COMMAND,
        progress: Callable[[Part, bool], None] = lambda part, ended: None,
    ) -> None:
        self.options, self.environment, self.progress = options, environment, progress
        self.ranks = options.ranks or [1, 2, 4]
        ddlrun = environment.prefix / "bin" / "ddlrun"
        self.launcher = Launcher(ddlrun, rank_command, options.timeout, options.placement)
        self.report = Report(
            version=__version__,
            prefix=str(environment.prefix),
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            command=shlex.join(sys.argv),
            ranks=self.ranks,
            quick=options.quick,
            machine=probe.machine_facts(),
        )

    def run(self) -> Report:
        """Runs the parts that were asked for. A part that breaks is a failed part.

        Nothing else is started on several hosts one of which is not well.
        """
        if not self.options.placement.is_local and self._run(*HOSTS).outcome == "failed":
            return self.report
        for name in self.options.parts:
            if name != "links" or self.launcher.hosts > 1:
                self._run(name, PARTS[name])
        return self.report

    def _run(self, name: str, title: str) -> Part:
        part = Part(name, title)
        self.report.parts.append(part)
        self.progress(part, False)
        start = time.monotonic()
        try:
            if name == "versions" or not (missing := self._missing()):
                part.cases.extend(getattr(self, f"_{name}")())
            else:
                part.cases.append(Case("ddlrun", "failed", message=missing))
        except Exception as error:
            message = f"the suite itself broke: {type(error).__name__}: {error}"
            part.cases.append(Case("suite", "failed", 0.0, message, traceback.format_exc()))
        part.seconds = time.monotonic() - start
        self.progress(part, True)
        return part

    def _missing(self) -> str | None:
        """Why no rank can be started at all, if so."""
        ddlrun = self.launcher.ddlrun
        if not os.access(ddlrun, os.X_OK):
            return f"there is no {ddlrun}: install the package ddl into this environment"
        return None

    def _hosts(self) -> Iterable[Case]:
        """A rank on each; from then on, the hosts are counted."""
        job = self.launcher.run("ddl_ce_smoke.hosts", [], None)
        cases = judge_hosts(events(job, "host"))
        count = len(cases)
        if count:
            self.launcher = replace(self.launcher, hosts=count)
        if count > 1 and not self.options.ranks:
            self.report.ranks = self.ranks = [1, count]
        return job_cases(job, "one rank on each", cases)

    def _links(self) -> Iterable[Case]:
        """Between the hosts, measured by a rank on each."""
        job = self.launcher.run("ddl_ce_smoke.links", [], None)
        self.report.links = [Link(**row) for row in events(job, "link")]
        cases = judge_links(self.report.links, self.options.reference)
        return job_cases(job, "one rank on each", cases)

    def _versions(self) -> Iterable[Case]:
        python = [self.launcher.python[0], "-P"]
        cases, facts = probe.check(self.environment, python, self.options.timeout)
        self.report.machine.update(facts)
        if missing := self._missing():
            return [*cases, Case("ddlrun", "failed", message=missing)]
        return cases

    def _collectives(self) -> Iterable[Case]:
        for ranks in self.ranks:
            for step in passes(self.options.quick):
                label = f"{plural(ranks)}{', ' if step.label else ''}{step.label}"
                arguments = [word for via in step.via for word in ("--via", via)]
                arguments += ["--quick"] * self.options.quick
                job = self._launch("collectives", arguments, ranks, step.environ)
                yield from job_cases(job, label, rank_cases(job, label))

    def _training(self) -> Iterable[Case]:
        job = self._launch("train", ["--ranks", self._counts()], self.ranks[-1])
        self.report.throughput += [Throughput(**row) for row in events(job, "throughput")]
        cases = [case for count in self._measured() for case in trained(job, "DDP", count)]
        yield from job_cases(job, plural(job.size), cases)
        for name, module in (("Horovod", "train_horovod"), ("Keras", "train_keras")):
            if not probe.exists(name.lower()):
                continue
            rows = []
            for count in self._measured():
                job = self._launch(module, [], count)
                rows += [Throughput(**row) for row in events(job, "throughput")]
                yield from job_cases(job, f"{name}, {plural(count)}", trained(job, name, count))
            self.report.throughput += with_efficiency(rows)
        for name, package, module in (
            ("LMS", "lms-torch", "train_lms"),
            ("Keras with LMS", "lms-tensorflow", "train_lms_keras"),
        ):
            if not probe.exists(package):
                continue
            job = self._launch(module, [], 1)
            yield from job_cases(job, name, rank_cases(job, name))
        if not self.options.quick and "own-compilers" in self.environment.recorded:
            job = self._launch("compiled", [], 1)
            yield from job_cases(job, "torch.compile", rank_cases(job, "torch.compile"))

    def _benchmark(self) -> Iterable[Case]:
        arguments = ["--ranks", self._counts(), *["--quick"] * self.options.quick]
        job = self._launch("bench", arguments, self.ranks[-1])
        throughput = with_efficiency(
            [Throughput(accuracy=None, efficiency=None, **row) for row in events(job, "speed")]
        )
        bandwidth = slowest(events(job, "bandwidth"))
        self.report.throughput += throughput
        self.report.bandwidth += bandwidth
        cases = []
        for count in self._measured():
            if message := compare_speeds([r for r in throughput if r.ranks == count]):
                cases.append(Case(f"training on {plural(count)}", "passed", message=message))
            if message := compare_bandwidths([r for r in bandwidth if r.ranks == count]):
                cases.append(Case(f"allreduce on {plural(count)}", "passed", message=message))
        return job_cases(job, plural(job.size), cases)

    def _research(self) -> Iterable[Case]:
        return research_cases(self._launch, self.launcher.hosts)

    def _launch(
        self,
        module: str,
        arguments: Sequence[str],
        ranks: int,
        environ: dict[str, str] | None = None,
    ) -> Job:
        return self.launcher.run(f"ddl_ce_smoke.{module}", arguments, ranks, environ or {})

    def _measured(self) -> Sequence[int]:
        """The rank counts that are trained and measured on: the largest, if it is to be quick."""
        return self.ranks[-1:] if self.options.quick else self.ranks

    def _counts(self) -> str:
        return ",".join(map(str, self._measured()))


def slowest(rows: Sequence[dict[str, Any]]) -> list[Bandwidth]:
    """The `bandwidth` rows of all ranks, as one row each for the slowest rank."""
    seconds: dict[tuple[str, str, int, int], float] = {}
    for row in rows:
        key = (row["backend"], row["device"], row["ranks"], row["nbytes"])
        seconds[key] = max(seconds.get(key, 0.0), row["seconds"])
    return [Bandwidth.measured(*key, value) for key, value in seconds.items()]


def compare_speeds(rows: Sequence[Throughput]) -> str:
    """One line about one number of ranks: the first backend, and its ratio to the other."""
    if not rows:
        return ""
    first, *others = rows
    text = f"{first.backend} {first.samples_per_second:,.0f} samples/s on {first.device}"
    if first.efficiency is not None:
        text += f", efficiency {first.efficiency:.0%}"
    if first.oversubscribed:
        text += " (more ranks than cores)"
    for other in others:
        ratio = first.samples_per_second / other.samples_per_second
        text += f", {ratio:.2f}x {other.backend}"
    return text


def compare_bandwidths(rows: Sequence[Bandwidth]) -> str:
    """One line: the best bus bandwidth of the first backend, and its ratios to the other."""
    if not rows:
        return ""
    first = rows[0].backend
    best = max((row for row in rows if row.backend == first), key=lambda row: row.busbw)
    text = f"{first} busbw up to {best.busbw / 1e9:.2f} GB/s on {best.device}"
    others = {row.nbytes: row for row in rows if row.backend != first}
    ratios = [
        others[row.nbytes].seconds / row.seconds
        for row in rows
        if row.backend == first and row.nbytes in others
    ]
    if ratios:
        peer = next(iter(others.values())).backend
        text += f", {min(ratios):.2f}x to {max(ratios):.2f}x {peer}"
    return text
