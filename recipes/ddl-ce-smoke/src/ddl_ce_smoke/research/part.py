"""The part of the suite that runs the programs: each on one rank and on two."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Protocol

from ddl_ce_smoke.cases import events, job_cases, plural
from ddl_ce_smoke.launch import Job
from ddl_ce_smoke.model import Case, Outcome
from ddl_ce_smoke.research import PROGRAMS, Program, difference


class Launch(Protocol):
    """Runs a module of this package on some ranks."""

    def __call__(
        self, module: str, arguments: Sequence[str], ranks: int, environ: dict[str, str]
    ) -> Job:
        """The job, which has ended."""


def research_cases(launch: Launch, hosts: int) -> Iterable[Case]:
    """A case of each program that this environment has the packages of; the others are skipped.

    Args:
        launch: of the suite.
        hosts: how many the ranks run on.
    """
    for program in PROGRAMS:
        if missing := program.missing():
            yield Case(program.title, "skipped", message=f"not installed: {', '.join(missing)}")
        elif hosts > 1 and not program.spans_hosts:
            yield Case(program.title, "skipped", message="it runs on one host alone")
        else:
            yield from _compare(program, launch)


def _compare(program: Program, launch: Launch) -> Iterable[Case]:
    with tempfile.TemporaryDirectory(prefix="ddlce-smoke-") as folder:
        environ = {"HF_HOME": folder, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        if program.names_another:
            environ["DDL_INSTEAD_OF"] = "gloo,nccl"
        jobs = [launch("research.run", [program.module], ranks, environ) for ranks in (1, 2)]
    found = [row["values"] for job in jobs for row in events(job, "numbers")]
    cases: list[list[Case]] = [[], []]
    if len(found) == len(jobs):
        problem = difference(*found)
        message = problem or f"{len(found[0]):,} numbers as on one rank"
        outcome: Outcome = "failed" if problem else "passed"
        cases[0].append(Case(f"{program.title} on 1 rank", "passed", message="the numbers to meet"))
        cases[1].append(Case(f"{program.title} on 2 ranks", outcome, message=message))
    for job, of_job in zip(jobs, cases, strict=True):
        yield from job_cases(job, f"{program.title}, {plural(job.size)}", of_job)
