"""The table, and the JSON behind it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from itertools import groupby

from rich.table import Table

from bench.lab.cell import Cell

MIB = 1 << 20


def median(cells: Iterable[Cell]) -> float | None:
    """The median over all calls of the same cell's repetitions; None when none succeeded."""
    times = [time for cell in cells for time in cell.times]
    return statistics.median(times) if times else None


def percentile(times: list[float], share: float) -> float:
    """The time that a share of the calls does not exceed, by the nearest rank."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def size_text(nbytes: int) -> str:
    """A size as 4 MiB or 64 KiB."""
    return f"{nbytes / MIB:g} MiB" if nbytes >= MIB else f"{nbytes / 1024:g} KiB"


def cell_text(cell: Cell) -> str:
    """A cell in a line, while they run."""
    where = f"{cell.layout} {cell.order} {size_text(cell.nbytes)} {cell.peer}"
    if cell.failure:
        return f"{where}: {cell.failure}"
    middle = statistics.median(cell.times)
    ratio = middle / cell.bound
    text = f"{where}: {1e3 * middle:.0f} ms, {ratio:.2f} x bound, uplink {cell.uplink:.2f} x"
    return text + (f", {cell.orphans} orphans" if cell.orphans else "")


def make_table(cells: list[Cell]) -> Table:
    """The table: a section for each layout, order and size, a row for each library."""
    table = Table("library", "median ms", "min", "p95", "x bound", "uplink", "cores", "vs ddl")
    for column in table.columns[1:]:
        column.justify = "right"
    for _, group in groupby(cells_in_order(cells), key=_section):
        rows = _by_peer(list(group))
        first = next(iter(rows.values()))[0]
        title = f"{first.layout}, {first.order}, {size_text(first.nbytes)}"
        table.add_row(f"[bold]{title}[/]", f"bound {1e3 * first.bound:.0f}")
        ours = best_of(rows, ours=True)
        for peer, same in rows.items():
            table.add_row(peer, *_columns(same, ours))
        table.add_section()
    return table


def best_of(rows: dict[str, list[Cell]], ours: bool) -> float | None:
    """The best median of our rows, or of the peers'."""
    found = [median(same) for peer, same in rows.items() if peer.startswith("ddl") == ours]
    return min((time for time in found if time is not None), default=None)


def cells_in_order(cells: list[Cell]) -> list[Cell]:
    """Cells of one section side by side, sections as they were first measured."""
    sections = list(dict.fromkeys(_section(cell) for cell in cells))
    return sorted(cells, key=lambda cell: sections.index(_section(cell)))


def _section(cell: Cell) -> tuple[str, str, int]:
    return cell.layout, cell.order, cell.nbytes


def _by_peer(cells: list[Cell]) -> dict[str, list[Cell]]:
    names = dict.fromkeys(cell.peer for cell in cells)
    return {name: [cell for cell in cells if cell.peer == name] for name in names}


def _columns(same: list[Cell], ours: float | None) -> list[str]:
    middle = median(same)
    if middle is None:
        return [same[0].failure]
    times = [time for cell in same for time in cell.times]
    done = [cell for cell in same if cell.times]
    numbers = [f"{1e3 * t:.0f}" for t in (middle, min(times), percentile(times, 0.95))]
    numbers += [f"{middle / same[0].bound:.2f}"]
    numbers += [f"{max(cell.uplink for cell in done):.2f}"]
    numbers += [f"{statistics.median(cell.cores for cell in done):.1f}"]
    numbers += [f"{middle / ours:.2f}" if ours else "-"]
    if failed := len(same) - len(done):
        numbers[0] += f" ({failed} of {len(same)} failed)"
    return numbers
