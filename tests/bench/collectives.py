"""What the benchmarks of a framework's collectives in the lab have in common."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from rich.console import Console

from bench.check import Check
from bench.command import parse_size, write_report
from bench.lab.cell import Cell
from bench.lab.layout import Layout, parse_layout
from bench.lab.network import Lab, bring_up
from bench.lab.report import cell_text, make_table, where_text


def add_options(
    ask: argparse.ArgumentParser, collectives: Sequence[str], ways: Iterable[str], out: Path
) -> None:
    """The options of what is run and for how long, but for the defaults of layouts and ways."""
    ask.add_argument("--orders", nargs="+", default=["sorted", "interleaved"])
    ask.add_argument("--collectives", nargs="+", choices=collectives, default=list(collectives))
    ask.add_argument("--by", nargs="+", choices=list(ways), help="default: %(default)s")
    ask.add_argument("--size", type=parse_size, default=4 << 20, help="default: 4M")
    ask.add_argument("--iterations", type=int, default=7, help="calls in a run")
    ask.add_argument("--seconds", type=float, default=20, help="begin no further call after these")
    ask.add_argument("--limit", type=float, default=240, help="kill a run after these seconds")
    ask.add_argument("--host-mbit", type=float, default=250, help="rate of a host's link")
    ask.add_argument("--uplink-mbit", type=float, default=50, help="rate of a rack's uplink")
    ask.add_argument("--out", type=Path, default=out, help="the JSON")


def layouts_of(ask: argparse.Namespace) -> list[Layout]:
    """The layouts that `--layouts` names."""
    return [parse_layout(name, ask.host_mbit, ask.uplink_mbit) for name in ask.layouts]


def measure_all(
    places: Iterable[tuple[Layout, str]],
    ask: argparse.Namespace,
    run: Callable[[Lab, str, str, str], Cell],
) -> list[Cell]:
    """Each collective each way; prints cells and table and writes the JSON, if interrupted too.

    Args:
        places: layouts and orders.
        run: the cell of an order, a collective and a way.
    """
    cells: list[Cell] = []
    try:
        for (layout, order), collective, way in product(places, ask.collectives, ask.by):
            with bring_up(layout) as lab:
                cells.append(run(lab, order, collective, way))
            print(cell_text(cells[-1]), flush=True)
    finally:
        if cells:
            Console(width=110).print(make_table(cells))
            write_report(ask.out, ask, cells=[asdict(cell) for cell in cells])
    return cells


def ours(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Those by ddl, which are judged."""
    return (cell for cell in cells if cell.peer.endswith(" by ddl"))


def bound_check(row: str, cell: Cell, bar: float) -> Check:
    """That it takes at most `bar` times its bound."""
    if cell.failure:
        return Check(row, where_text(cell), failure=cell.failure)
    share = statistics.median(cell.times) / cell.bound
    return Check(row, where_text(cell), "{} x the lower bound", share, bar, at_most=True)
