"""What the benchmarks have written to tests/bench/out, as Markdown: the body of a page of results.

    python tests/bench/tables.py > tests/bench/results/DATE-bench.md

A section for each file that is there, with its date, commit and machine; then the bar, row by
row, as `bar.py` judges it. What it means is to be written by whoever measured it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import bar, bench_ddp, bench_types
from bench.bench_host import LIMITS
from bench.command import asker, run_command
from bench.lab.cell import Cell
from bench.lab.report import best, median, sections, size_text
from bench.lab.training import Training

HERE = Path(__file__).parent
Lines = Iterable[str]
Found = dict[str, Any]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Lines:
    """A table's lines."""
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def digits(value: float | None) -> str:
    """Three digits that count, or a dash."""
    if value is None:
        return "–"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def host(found: Found) -> Lines:
    """One host: microseconds of each library."""
    yield from _host(found, "seconds", f"median of {found['options']['repetitions']}")
    yield from _host(found, "far", "while the processors were far")


def _host(found: Found, state: str, what: str) -> Lines:
    times = {key: 1e6 * time for key, time in bar.host_medians(found, state).items()}
    names = list(dict.fromkeys(name for _, _, name in times))
    for ranks in dict.fromkeys(n for n, _, _ in times):
        yield f"{ranks} ranks, us per call, in place, {what}:"
        yield ""
        rows = []
        for nbytes in dict.fromkeys(size for n, size, _ in times if n == ranks):
            row = {name: times.get((ranks, nbytes, name)) for name in names}
            peers = [t for name, t in row.items() if t and name not in ("ddl", *LIMITS)]
            ours = row.get("ddl")
            ratio = f"{min(peers) / ours:.2f}" if peers and ours else "–"
            rows.append([size_text(nbytes), *map(digits, row.values()), ratio])
        yield from table(["size", *names, "best peer / ddl"], rows)


def types(found: Found) -> Lines:
    """Sums of 16-bit floats beside float32."""
    times = bar.times_of_types(found)
    rows = []
    for ranks, nbytes in dict.fromkeys((n, size) for n, size, _ in times):
        us = [statistics.median(times[ranks, nbytes, name]) for name in bench_types.TYPES]
        rates = [bench_types.rate(times, ranks, nbytes, name) for name in bench_types.TYPES[1:]]
        rows.append(
            [str(ranks), size_text(nbytes), *map(digits, us), *(f"{each:.2f}" for each in rates)]
        )
    yield "us per call, out of place:"
    yield ""
    heads = [f"{name}'s rate" for name in bench_types.TYPES[1:]]
    yield from table(["ranks", "size", *bench_types.TYPES, *heads], rows)


def lab(found: Found) -> Lines:
    """Between hosts: milliseconds of each library, and libddl's share of the bound."""
    cells = [Cell(**cell) for cell in found["cells"]]
    peers = list(dict.fromkeys(cell.peer for cell in cells))
    rows = []
    for row in sections(cells):
        first = next(iter(row.values()))[0]
        ours, other = best(row, ours=True), best(row, ours=False)
        texts = []
        for peer in peers:
            middle = median(row.get(peer, []))
            text = digits(middle and 1e3 * middle)
            if middle and peer.startswith("ddl"):
                text += f" ({middle / first.bound:.2f}, {max(c.uplink for c in row[peer]):.2f})"
            texts.append(text)
        ratio = f"{other / ours:.2f}" if ours and other else "–"
        where = [first.layout, first.order, size_text(first.nbytes), digits(1e3 * first.bound)]
        rows.append([*where, *texts, ratio])
    yield "Medians, ms; of libddl the share of the bound and of the buffer on the busiest uplink:"
    yield ""
    yield from table(["layout", "order", "size", "bound", *peers, "best peer / ddl"], rows)
    probes = [cell for cell in cells if cell.probe_seconds]
    if probes:
        slowest = max(cell.probe_seconds for cell in probes)
        wrong = sorted({text for cell in probes for text in cell.probe_wrong})
        said = "; ".join(wrong) or "nothing"
        yield f"Probes: {len(probes)}, at most {slowest:.1f} s; wrong: {said}."
        yield ""


def ddp(found: Found) -> Lines:
    """Training: milliseconds of a step."""
    runs = [Training(**run) for run in found["runs"]]
    rows = []
    for (layout, order), backends in bench_ddp.rows_of(runs).items():
        for name, same in backends.items():
            gain = bench_ddp.gain(backends, name) if name in bench_ddp.PEERS else None
            uplink = max(run.uplink for run in same)
            texts = [digits(1e3 * bench_ddp.median(same)), f"{uplink:.2f}"]
            rows.append([layout, order, name, *texts, f"{gain:.2f}" if gain else ""])
    yield from table(["layout", "order", "backend", "ms a step", "uplink", "gain"], rows)


def sim(found: Found) -> Lines:
    """Predictions beside what was measured."""
    rows = []
    for row in found["rows"]:
        where = [row["layout"], row["order"], size_text(row["nbytes"]), row["chosen"]]
        times = [digits(1e3 * row[key]) for key in ("bound", "predicted", "measured")]
        error = "failed" if row["error"] is None else f"{100 * row['error']:+.1f}%"
        rows.append([*where, *times, error])
    yield "ms:"
    yield ""
    head = ["layout", "order", "size", "schedule", "bound", "predicted", "measured", "error"]
    yield from table(head, rows)


SECTIONS: dict[str, tuple[str, Callable[[Found], Lines]]] = {
    "host": ("One host", host),
    "types": ("16-bit floats", types),
    "lab": ("Between hosts", lab),
    "ddp": ("Training between hosts", ddp),
    "sim": ("The simulator", sim),
}


def main() -> None:
    """Prints all of it."""
    ask = asker(__doc__)
    ask.add_argument("--out", type=Path, default=HERE / "out", help="the folder with the JSON")
    folder = ask.parse_args().out
    checks, sources = bar.read_all(folder, since=0)
    for name, (title, show) in SECTIONS.items():
        print(f"## {title}\n")
        print(f"`python tests/bench/bench_{name}.py`: {sources[name]}\n")
        if (folder / f"{name}.json").exists():
            print("\n".join(show(json.loads((folder / f"{name}.json").read_text()))))
    print("## The bar\n")
    print("\n".join(table(bar.HEAD, bar.worst(checks, sources))))
    print("\n".join(f"- {line}" for line in bar.shortfalls(checks, sources)))


if __name__ == "__main__":
    run_command(main)
