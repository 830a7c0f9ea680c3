"""The bar, row by row, from what the benchmarks have written to tests/bench/out.

    python tests/bench/bar.py
    python tests/bench/bar.py --out FOLDER --since 1790000000

`make bench` ends with it. Of each figure that a row demands, the table has the worst; a row that
was not measured falls short, too. Then every figure that does, with the reason, if one is known by
measurement: "unreachable", where by the same run's own figures no library could do it, or what
`explained.yaml` says of figures that are near enough. Ends with 1 and names each of them.
"""

from __future__ import annotations

import datetime
import json
import re
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import (
    bench_collectives,
    bench_ddp,
    bench_faults,
    bench_jax,
    bench_jax_lab,
    bench_jax_start,
    bench_keras_backends,
    bench_small,
    bench_types,
)
from bench.check import Check
from bench.command import asker, end, run_command
from bench.lab import bar as lab_bar
from bench.lab import bar_host
from bench.lab.cell import Cell
from bench.lab.faults import Fault
from bench.lab.layout import parse_layout
from bench.lab.network import why_not
from bench.lab.training import Training

HERE = Path(__file__).parent
EXPLAINED = HERE / "explained.yaml"
SIMULATOR = "ddl-sim predicts the lab's times within 10%"

ROWS = {
    lab_bar.SHAPED: "lab",
    lab_bar.SORTED: "lab",
    lab_bar.MIXED: "lab",
    lab_bar.RAGGED: "lab",
    lab_bar.SLOW: "lab",
    lab_bar.FLAT: "lab",
    bench_small.ROW: "small",
    bench_collectives.ROW: "collectives",
    bar_host.LARGE: "host",
    bar_host.MIDDLE: "host",
    bar_host.SMALL: "host",
    bar_host.CROWDED: "host",
    bench_types.ROW: "types",
    bench_faults.ROW: "faults",
    lab_bar.PROBE: "lab",
    bench_ddp.ROW: "ddp",
    bench_ddp.FSDP: "ddp",
    bench_ddp.HSDP: "ddp",
    bench_ddp.HOROVOD: "ddp",
    SIMULATOR: "sim",
    bench_jax.ROW: "jax",
    bench_jax_lab.ROW: "jax_lab",
    bench_jax_start.ROW: "jax_start",
    bench_keras_backends.ROW: "keras_backends",
}
"""The rows in the order in which they are shown, and the file with their figures."""
HEAD = ("the bar", "demanded", "at worst", "where", "met")
IN_LAB = ("lab", "small", "collectives", "faults", "ddp", "sim", "jax_lab")

Found = dict[str, Any]


# -- What each file says ----------------------------------------------------------------------


def _of_cells(checks: Callable[[list[Cell]], list[Check]]) -> Callable[[Found], list[Check]]:
    return lambda found: checks([Cell(**cell) for cell in found["cells"]])


def host_medians(found: Found, state: str = "seconds") -> dict[tuple[int, int, str], float]:
    """Seconds of host.json, by ranks, bytes and library; or with the processors "far"."""
    return {
        (cell["ranks"], cell["bytes"], cell["library"]): statistics.median(cell[state])
        for cell in found["cells"]
        if cell[state]
    }


def times_of_types(found: Found) -> bench_types.Times:
    """What types.json has."""
    return {(cell["ranks"], cell["bytes"], cell["type"]): cell["us"] for cell in found["cells"]}


def _host(found: Found) -> list[Check]:
    return bar_host.host_checks(host_medians(found))


def _types(found: Found) -> list[Check]:
    return bench_types.checks(times_of_types(found))


def _faults(found: Found) -> list[Check]:
    return bench_faults.checks([Fault(**fault) for fault in found["faults"]])


def _ddp(found: Found) -> list[Check]:
    runs = [Training(**run) for run in found["runs"]]
    rates = found["options"]["host_mbit"], found["options"]["uplink_mbit"]
    layouts = {run.layout: parse_layout(run.layout, *rates) for run in runs}
    return bench_ddp.checks(runs, layouts)


def _sim(found: Found) -> list[Check]:
    checks = []
    for row in found["rows"]:
        where = f"{row['layout']} {row['order']} {row['nbytes']} bytes {row['schedule']}"
        error, what = row["error"], "the prediction is off by {} of the time"
        if error is None:
            checks.append(Check(SIMULATOR, where, failure=row["failure"]))
        else:
            checks.append(Check(SIMULATOR, where, what, abs(error), 0.1, at_most=True))
    return checks


def _jax(found: Found) -> list[Check]:
    medians = {
        (cell["kind"], cell["bytes"]): statistics.median(cell["seconds"]) for cell in found["cells"]
    }
    return bench_jax.checks(medians, sorted({nbytes for _, nbytes in medians}))


def _jax_start(found: Found) -> list[Check]:
    one, several = (
        [bench_jax_start.Start(**start) for start in row["starts"]] for row in found["rows"]
    )
    return bench_jax_start.checks(one, several, found["options"]["ranks"])


def _keras_backends(found: Found) -> list[Check]:
    speeds = {
        (run["way"], run["ranks"]): statistics.median(run["images_per_second"])
        for run in found["runs"]
    }
    return bench_keras_backends.checks(speeds, found["options"]["ranks"])


READ: dict[str, Callable[[Found], list[Check]]] = {
    "lab": _of_cells(lab_bar.checks),
    "small": _of_cells(bench_small.checks),
    "collectives": _of_cells(bench_collectives.checks),
    "host": _host,
    "types": _types,
    "faults": _faults,
    "ddp": _ddp,
    "sim": _sim,
    "jax": _jax,
    "jax_lab": _of_cells(bench_jax_lab.checks),
    "jax_start": _jax_start,
    "keras_backends": _keras_backends,
}


def read_all(folder: Path, since: float) -> tuple[list[Check], dict[str, str]]:
    """All checks, and of each file where its figures are from, or why there are none."""
    checks: list[Check] = []
    sources: dict[str, str] = {}
    lab = why_not()
    for name, read in READ.items():
        path = folder / f"{name}.json"
        if not path.exists():
            reason = lab if lab and name in IN_LAB else f"bench_{name}.py has written nothing"
            sources[name] = f"not run: {reason}"
            continue
        found = json.loads(path.read_text())
        if datetime.datetime.fromisoformat(found["date"]).timestamp() < since:
            reason = lab if lab and name in IN_LAB else f"its figures are of {found['date']}"
            sources[name] = f"not run: {reason}"
            continue
        checks += read(found)
        cpu = found["machine"]
        sources[name] = f"{found['date']}, {found['commit']}, {cpu['cpus']} x {cpu['processor']}"
    return checks, sources


# -- What is shown ----------------------------------------------------------------------------


def explain(check: Check, explained: list[dict[str, Any]]) -> str:
    """Why it falls short, by measurement; or that this is not known."""
    if check.unreachable:
        return check.unreachable
    for entry in explained:
        is_of_it = entry["row"] == check.row and re.search(entry["of"], check.line())
        if is_of_it and check.share >= entry["least_share"]:
            return f"{entry['because'].strip()} ({entry['measured']})"
    return "not explained"


def worst(checks: list[Check], sources: dict[str, str]) -> Iterator[tuple[str, ...]]:
    """Of each figure of each row the worst: row, demanded, at worst, where, how many are met."""
    for row, source in ROWS.items():
        same = [check for check in checks if check.row == row]
        if not same:
            why = sources[source]
            said = why if why.startswith("not run") else "not run: not among what was measured"
            yield row, "", "", said, "-"
        for what in dict.fromkeys(check.what for check in same):
            these = [check for check in same if check.what == what]
            least = min(these, key=lambda check: check.share)
            met, lost = sum(check.met for check in these), sum(bool(c.unreachable) for c in these)
            text = what.format(least.demand()) if what else "no failure"
            reached = "failed" if least.failure else least.figure
            count = f"{met} of {len(these)}" + (f", {lost} unreachable" if lost else "")
            yield row, text, reached, least.where, count


def make_table(checks: list[Check], sources: dict[str, str]) -> Table:
    """A line for each figure of each row: the worst."""
    table = Table(*HEAD)
    last = ""
    for row, *texts in worst(checks, sources):
        if row != last:
            table.add_section()
        table.add_row("" if row == last else row, *texts)
        last = row
    return table


def shortfalls(checks: list[Check], sources: dict[str, str]) -> list[str]:
    """A line for each figure that falls short, with the reason, and each row without figures."""
    explained = yaml.safe_load(EXPLAINED.read_text())
    short = dict.fromkeys(check for check in checks if not check.met)
    lines = [f"{c.row}: {c.line()}: {explain(c, explained)}" for c in short]
    empty = (row for row in worst(checks, sources) if row[-1] == "-")
    return lines + [f"{row}: {why}" for row, _, _, why, _ in empty]


def main() -> None:
    """Reads, shows, ends."""
    ask = asker(__doc__)
    ask.add_argument("--out", type=Path, default=HERE / "out", help="the folder with the JSON")
    ask.add_argument("--since", type=float, default=0, help="take no older figures; seconds, Unix")
    asked = ask.parse_args()
    checks, sources = read_all(asked.out, asked.since)
    for name, source in sources.items():
        print(f"{name}: {source}")
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        print("gpu: not run: this machine has no GPU")
    Console(width=150).print(make_table(checks, sources))
    end(shortfalls(checks, sources))


if __name__ == "__main__":
    run_command(main)
