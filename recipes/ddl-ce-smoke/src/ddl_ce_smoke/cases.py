"""The cases of a job that has ended, from its ranks' journals."""

from __future__ import annotations

from typing import Any

from ddl_ce_smoke.launch import Job
from ddl_ce_smoke.model import Case, Outcome


def plural(ranks: int) -> str:
    """'1 rank', '2 ranks'."""
    return f"{ranks} rank{'s' if ranks > 1 else ''}"


def events(job: Job, event: str) -> list[dict[str, Any]]:
    """All ranks' events of one kind, without the journal's own fields."""
    return [
        {key: value for key, value in entry.items() if key not in ("event", "time")}
        for log in job.ranks
        for entry in log.of(event)
    ]


def trained(job: Job, name: str, count: int) -> list[Case]:
    """The case of one training on `count` ranks; none if the job broke before its end."""
    outcomes = [row for row in events(job, "training") if row["ranks"] == count]
    if len(outcomes) < count:
        return []
    problems = [problem for row in outcomes for problem in row["problems"]]
    first = outcomes[0]
    message = (
        f"test accuracy {first['accuracy']:.1%}, identical weights, "
        f"{first['samples_per_second']:,.0f} samples/s"
    )
    outcome: Outcome = "failed" if problems else "passed"
    return [Case(f"{name} on {plural(count)}", outcome, 0.0, problems[0] if problems else message)]


def rank_cases(job: Job, label: str) -> list[Case]:
    """The cases that every rank wrote; one fails if it failed on any rank."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in events(job, "case"):
        rows.setdefault(row["name"], []).append(row)
    cases = []
    for name, seen in rows.items():
        problems = [row["problem"] for row in seen if row["problem"]]
        if problems or len(seen) == job.size:
            cases.append(
                Case(
                    f"{label}: {name}",
                    "failed" if problems else "passed",
                    max(row["seconds"] for row in seen),
                    problems[0] if problems else seen[0].get("says", ""),
                    "\n".join(problems[1:]),
                )
            )
    return cases


def job_cases(job: Job, label: str, cases: list[Case]) -> list[Case]:
    """The cases, and one for the run itself: a rank that died or hung, a bad exit status."""
    explained = any(case.outcome == "failed" for case in cases)
    problem = job.problem()
    if problem and not (explained and all(log.ended for log in job.ranks)):
        run = Case(f"{label}: run", "failed", job.seconds, problem, job.detail())
    elif not cases:
        run = Case(
            f"{label}: run", "failed", job.seconds, "no rank reported a result", job.detail()
        )
    else:
        hosts = ", ".join(dict.fromkeys(log.host for log in job.ranks))
        run = Case(f"{label}: run", "passed", job.seconds, f"on {hosts}")
    return [run, *cases]
