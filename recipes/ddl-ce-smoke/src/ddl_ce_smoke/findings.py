"""The findings of a program on one rank, told on the terminal and in the journal."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ddl_ce_smoke.rank import Rank, journal
from ddl_ce_smoke.train import add_journal_options


@dataclass(frozen=True)
class Finding:
    """One thing to check: its problem, or "", and what to say when there is none."""

    name: str
    problem: str
    says: str


def report_findings(
    check: Callable[[], list[Finding]], prog: str, doc: str | None, argv: Sequence[str] | None
) -> int:
    """Runs `check` with the options of a journal. Exit status 1 if it did not come out right."""
    parser = argparse.ArgumentParser(
        prog=f"python -m ddl_ce_smoke.{prog}",
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_journal_options(parser)
    args = parser.parse_args(argv)
    with journal(args.journal, Rank.from_environment()) as record:
        start = time.perf_counter()
        found = check()
        for finding in found:
            record.write("case", seconds=time.perf_counter() - start, **asdict(finding))
            print(f"{finding.name}: {finding.problem or finding.says}")
    return 1 if any(finding.problem for finding in found) else 0
