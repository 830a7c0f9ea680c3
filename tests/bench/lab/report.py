"""The table of what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

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
    """A size as 4 MiB, 64 KiB or 4 B."""
    if nbytes < 1024:
        return f"{nbytes} B"
    return f"{nbytes / MIB:g} MiB" if nbytes >= MIB else f"{nbytes / 1024:g} KiB"


def where_text(cell: Cell) -> str:
    """Which cell it is."""
    return f"{cell.layout} {cell.order} {size_text(cell.nbytes)} {cell.peer}"


def cell_text(cell: Cell) -> str:
    """A cell in a line, while they run."""
    if cell.failure:
        return f"{where_text(cell)}: {cell.failure}"
    middle = statistics.median(cell.times)
    ratio = f"{middle / cell.bound:.2f} x bound, uplink {cell.uplink:.2f} x"
    return f"{where_text(cell)}: {1e3 * middle:.0f} ms, {ratio}"


def make_table(cells: list[Cell]) -> Table:
    """The table: a section for each layout, order and size, a row for each library."""
    table = Table("library", "median ms", "min", "p95", "x bound", "uplink", "cores", "vs ddl")
    for column in table.columns[1:]:
        column.justify = "right"
    for rows in sections(cells):
        first = next(iter(rows.values()))[0]
        title = f"{first.layout}, {first.order}, {size_text(first.nbytes)}"
        table.add_row(f"[bold]{title}[/]", f"bound {1e3 * first.bound:.0f}")
        ours = best(rows, ours=True)
        for peer, same in rows.items():
            table.add_row(peer, *_columns(same, ours))
        table.add_section()
    return table


def failures(cells: list[Cell]) -> list[str]:
    """A line for every reason why a cell has no times, and for orphans."""
    lines = [f"{where_text(cell)}: {cell.failure}" for cell in cells if cell.failure]
    left = [f"{where_text(cell)}: left {cell.orphans} processes" for cell in cells if cell.orphans]
    return list(dict.fromkeys(lines + left))


def sections(cells: list[Cell]) -> list[dict[str, list[Cell]]]:
    """The cells by layout, order and size, in each by library, as they were first measured."""
    found: dict[tuple[str, str, int], dict[str, list[Cell]]] = {}
    for cell in cells:
        rows = found.setdefault((cell.layout, cell.order, cell.nbytes), {})
        rows.setdefault(cell.peer, []).append(cell)
    return list(found.values())


def best(rows: dict[str, list[Cell]], ours: bool) -> float | None:
    """The best median of libddl's rows, or of the other libraries'."""
    found = [median(same) for peer, same in rows.items() if peer.startswith("ddl") == ours]
    return min((time for time in found if time is not None), default=None)


def _columns(same: list[Cell], ours: float | None) -> list[str]:
    middle = median(same)
    if middle is None:
        return ["failed"]
    done = [cell for cell in same if cell.times]
    times = [time for cell in done for time in cell.times]
    numbers = [f"{1e3 * time:.0f}" for time in (middle, min(times), percentile(times, 0.95))]
    if len(done) < len(same):
        numbers[0] += f" ({len(same) - len(done)} of {len(same)} failed)"
    numbers += [f"{middle / same[0].bound:.2f}", f"{max(cell.uplink for cell in done):.2f}"]
    numbers += [f"{statistics.median(cell.cores for cell in done):.1f}"]
    return [*numbers, f"{middle / ours:.2f}" if ours else "-"]
