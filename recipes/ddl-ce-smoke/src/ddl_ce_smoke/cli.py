"""The program `ddlce-smoke`: presentation only."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from ddl_ce_smoke import __version__
from ddl_ce_smoke.links import read_reference
from ddl_ce_smoke.model import Part, Report
from ddl_ce_smoke.node import check_node, node_verdict
from ddl_ce_smoke.placement import place
from ddl_ce_smoke.probe import Environment
from ddl_ce_smoke.reports import write_reports
from ddl_ce_smoke.suite import LONG, PARTS, RANK_COMMAND, Options, Suite

EPILOG = """\
Exit status: 0 everything passed; 1 something failed; 2 a wrong argument; 3 the report cannot be
written; 130 interrupted.

Example: ddlce-smoke --ranks 1,2,4 --report smoke-report
"""
MAX_RANKS = 256


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="ddlce-smoke",
        description="Show that this environment works: imports, collectives, training, speed.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument(
        "--ranks",
        type=ranks,
        metavar="N,N...",
        help="rank counts to run on (default: 1,2,4; over several hosts 1 and one on each)",
    )
    _add_parts(result)
    _add_places(result)
    result.add_argument("--quick", action="store_true", help="less of all: does it work at all?")
    result.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="S",
        help="seconds that each run of ddlrun may take (default: 300)",
    )
    result.add_argument(
        "--report", type=Path, metavar="DIR", help="write report.html, report.json and junit.xml"
    )
    result.add_argument("--json", action="store_true", help="print the JSON report")
    result.add_argument(
        "--reference",
        type=reference,
        metavar="FILE",
        default={},
        help="report.json of a good run over the same hosts: a slower link fails",
    )
    result.add_argument(
        "--node",
        action="store_true",
        help="this host's verdict alone, as one JSON object, in about 20 seconds: for a prolog",
    )
    result.add_argument("--version", action="version", version=f"ddlce-smoke {__version__}")
    return result


def _add_parts(result: argparse.ArgumentParser) -> None:
    """Which parts run."""
    which = result.add_mutually_exclusive_group()
    which.add_argument(
        "--parts",
        type=parts,
        default=[name for name in PARTS if name not in LONG],
        metavar="NAME,...",
        help=f"only these: {', '.join(PARTS)}",
    )
    which.add_argument(
        "--long",
        dest="parts",
        action="store_const",
        const=list(PARTS),
        help=f"all parts, and so {', '.join(LONG)} too: some minutes more",
    )


def _add_places(result: argparse.ArgumentParser) -> None:
    """Where it runs."""
    where = result.add_argument_group(
        "where it runs", "Without one of these: the hosts of the batch job that this is, else here."
    ).add_mutually_exclusive_group()
    where.add_argument("-H", "--hosts", metavar="HOST,...", help="these hosts, as ddlrun's -H")
    where.add_argument("--hostfile", type=Path, metavar="FILE", help="the hosts in a file")
    where.add_argument("--local", action="store_true", help="this host, in a batch job too")
    result.add_argument(
        "--shared",
        type=Path,
        metavar="DIR",
        help="a folder that all hosts have, for the ranks' journals (default: the current one)",
    )


def ranks(text: str) -> list[int]:
    """A comma-separated list of rank counts, ascending, each once."""
    words = [word.strip() for word in text.split(",")]
    if not all(w.isascii() and w.isdigit() and 1 <= int(w) <= MAX_RANKS for w in words):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of rank counts (1 to {MAX_RANKS}) such as 1,2,4"
        )
    return sorted({int(word) for word in words})


def parts(text: str) -> list[str]:
    """A comma-separated list of parts, in the order in which they run."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in PARTS:
            raise argparse.ArgumentTypeError(f"{word!r} is no part; there are {', '.join(PARTS)}")
    return [name for name in PARTS if name in words]


def seconds(text: str) -> float:
    """A positive number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def reference(text: str) -> dict[str, float]:
    """The links of an earlier report."""
    try:
        return read_reference(Path(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def say(text: str, end: str = "\n") -> None:
    """Progress and messages go to standard error; standard output is for --json."""
    print(text, end=end, file=sys.stderr, flush=True)


def show_progress(part: Part, ended: bool) -> None:
    """One line per part, its end on the same line; then the failed cases."""
    if not ended:
        say(f"{part.title} ... ", end="")
        return
    say(f"{part.outcome}, {len(part.cases)} cases, {part.seconds:.1f} s")
    failed = [case for case in part.cases if case.outcome == "failed"]
    for case in failed[:5]:
        say(f"  FAILED {case.name}: {case.message}")
    if len(failed) > 5:
        say(f"  and {len(failed) - 5} more")


def summary(report: Report) -> str:
    """The table at the end."""
    lines = ["", f"{'part':<40}{'outcome':<9}{'passed':>7}{'failed':>7}{'skipped':>8}{'s':>8}"]
    for part in report.parts:
        lines.append(
            f"{part.title:<40}{part.outcome:<9}{part.count('passed'):>7}{part.count('failed'):>7}"
            f"{part.count('skipped'):>8}{part.seconds:>8.1f}"
        )
    for part in report.parts:
        if part.name in ("training", "benchmark", "research"):
            for case in part.cases:
                if case.outcome == "passed" and not case.name.endswith(": run"):
                    lines.append(f"  {case.name}: {case.message}")
    lines.append("PASSED" if report.passed else "FAILED")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None, rank_command: Sequence[str] = RANK_COMMAND) -> int:
    """Runs the suite on the environment that this interpreter belongs to; returns the exit status.

    Args:
        rank_command: starts a rank program; tests put a faulty one here.
    """
    args = parser().parse_args(argv)
    if args.node:
        print(json.dumps(node_verdict(verdict := check_node(rank_command))), flush=True)
        return 0 if verdict.passed else 1
    placement = place(args.hosts, args.hostfile, args.local, args.shared, os.environ)
    options = Options(args.ranks, args.quick, args.timeout, args.parts, placement, args.reference)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        environment = Environment.current()
        say(f"ddlce-smoke {__version__}, {environment.prefix}, on {placement.where}")
        report = Suite(options, environment, rank_command, show_progress).run()
        say(summary(report))
        if args.json:
            print(json.dumps(report.to_dict(), indent=2))
        if args.report:
            for path in write_reports(report, args.report):
                say(f"wrote {path}")
    except KeyboardInterrupt:
        say("\ninterrupted: all ranks are ended, no report is written")
        return 130
    except (OSError, ImportError) as error:
        say(f"error: the report in {args.report} is not complete: {error}")
        return 3
    return 0 if report.passed else 1


def interrupt(number: int, frame: FrameType | None) -> None:
    """A batch system's SIGTERM ends us as Ctrl-C does."""
    raise KeyboardInterrupt
