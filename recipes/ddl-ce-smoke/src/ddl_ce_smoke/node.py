"""`ddlce-smoke --node`: one host's verdict, for a prolog or a node health check."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ddl_ce_smoke.hosts import free_space, release_of, space_problems
from ddl_ce_smoke.model import Case, Part, Report
from ddl_ce_smoke.placement import place
from ddl_ce_smoke.probe import Environment
from ddl_ce_smoke.suite import Options, Suite

#: Seconds that the ranks may take.
LIMIT = 20.0


def check_node(rank_command: Sequence[str]) -> Report:
    """Check this host's space, then the collectives on two ranks of it.

    Args:
        rank_command: starts a rank program.
    """
    placement = place(None, None, True, None, os.environ)
    options = Options([2], True, LIMIT, ["collectives"], placement)
    suite = Suite(options, Environment.current(), rank_command)
    space = Part("space", "space")
    for name, problem in space_problems(free_space()).items():
        space.cases.append(Case(name, "failed" if problem else "passed", message=problem))
    suite.report.parts.append(space)
    if space.outcome == "passed":
        suite.run()
    return suite.report


def node_verdict(report: Report) -> dict[str, Any]:
    """The report in short: host, release, whether it passed, seconds, and the problems."""
    cases = [case for part in report.parts for case in part.cases]
    return {
        "host": socket.gethostname(),
        "release": release_of(Path(report.prefix)),
        "prefix": report.prefix,
        "passed": report.passed,
        "seconds": round(report.seconds, 1),
        "problems": [f"{c.name}: {c.message}" for c in cases if c.outcome == "failed"],
    }
