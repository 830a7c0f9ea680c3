"""The pictures of docs/performance.md: SVG that is drawn from the tables in tests/bench/results.

A page has the line `<!-- picture: NAME -->`, and the site shows the picture there. Text has the
colour of the page's text, and the other colours can be told from a white and from a dark page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from math import log
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "tests" / "bench" / "results"

#: The colours of lines and marks; text and axes are `currentColor`.
OURS = "#d43d2f"
PEERS = ("#3a7fc4", "#8f6fc4", "#21936a", "#a97a14", "#808790")

#: Units of the view box. A phone shows 520 of them in 360 pixels, so 15 are legible there.
WIDTH = 520
TEXT = 15

Row = Mapping[str, str]


def table(page: str, column: str) -> list[Row]:
    """The rows of a page's first table that has a column of this name.

    Args:
        page: the name of the file in tests/bench/results.
        column: one of the table's headings.
    """
    names, rows = list[str](), list[Row]()
    for line in (RESULTS / page).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not names and line.startswith("|") and column in cells:
            names = cells
        elif names and not line.startswith("|"):
            break
        elif names and set(line) - set("|-: "):
            rows.append(dict(zip(names, cells, strict=True)))
    if not rows:
        raise ValueError(f"tests/bench/results/{page} has no table with the column {column!r}")
    return rows


def number(cell: str) -> float | None:
    """The first number of a cell; none where the table says that it was not measured."""
    found = re.match(r"\d[\d.]*", cell)
    return float(found[0]) if found else None


@dataclass(frozen=True)
class Scale:
    """Where the values of an axis lie in the view box."""

    least: float
    most: float
    start: float
    end: float
    is_log: bool = True

    def __call__(self, value: float) -> float:
        """The position of a value."""
        if self.is_log:
            share = log(value / self.least) / log(self.most / self.least)
        else:
            share = (value - self.least) / (self.most - self.least)
        return round(self.start + share * (self.end - self.start), 1)


def text(x: float, y: float, words: str, anchor: str = "start", fill: str = "currentColor") -> str:
    """One line of text, its baseline at y."""
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="{fill}">{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, opacity: float) -> str:
    """A line of a grid."""
    return (
        f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="currentColor" '
        f'stroke-opacity="{opacity:g}"/>'
    )


def mark(shape: str, x: float, y: float, colour: str) -> str:
    """A point: its shape alone tells whose it is, too."""
    if shape == "bar":
        return (
            f'<path d="M{x:g} {y - 9:g}v18" stroke="currentColor" stroke-width="2.5" fill="none"/>'
        )
    if shape == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="5" fill="{colour}"/>'
    if shape == "square":
        return (
            f'<rect x="{x - 4:g}" y="{y - 4:g}" width="8" height="8" fill="none" '
            f'stroke="{colour}" stroke-width="2.5"/>'
        )
    return f'<path d="M{x:g} {y - 7:g}l7 7l-7 7l-7 -7z" fill="{colour}"/>'


def picture(title: str, height: float, parts: Sequence[str]) -> str:
    """The whole picture, without a blank line, as Markdown wants it."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img" '
        f'font-family="sans-serif" font-size="{TEXT}" style="width:100%;max-width:40rem">'
        f"<title>{escape(title)}</title>{''.join(parts)}</svg>"
    )


def spread(places: Mapping[str, float], gap: float) -> dict[str, float]:
    """Labels from top to bottom, each at its place or as far below it as those above demand."""
    found: dict[str, float] = {}
    last = float("-inf")
    for name in sorted(places, key=lambda name: places[name]):
        found[name] = last = max(places[name], last + gap)
    return found


def draw_one_host(page: str) -> str:
    """Each peer's time by ddl's, by the size of the buffer, on one host with two ranks."""
    names = {
        "intelmpi": "Intel MPI",
        "openmpi": "Open MPI",
        "oneccl": "oneCCL",
        "mpich": "MPICH",
        "gloo": "Gloo",
    }
    rows = table(page, "oneccl")
    height, top, bottom, left, right = 330, 40, 290, 40, 430
    y = Scale(0.7, 20, bottom, top)
    x = [left + (right - left) * i / (len(rows) - 1) for i in range(len(rows))]
    parts = [text(left - 30, 18, "times as long as ddl; above the line, ddl is faster")]
    for tick in (1, 2, 5, 10, 20):
        parts += [
            line(left, y(tick), right, y(tick), 0.2),
            text(left - 8, y(tick) + 5, f"{tick}", "end"),
        ]
    parts += [text(x[i], bottom + 22, rows[i]["size"], "middle") for i in range(0, len(rows), 2)]
    parts.append(
        f'<clipPath id="field"><path d="M{left} {top}H{right}V{bottom}H{left}z"/></clipPath>'
    )
    ends = {"ddl": y(1)}
    for (name, _), colour in zip(names.items(), PEERS, strict=True):
        ratios = [(number(row[name]) or 0) / (number(row["ddl"]) or 0) for row in rows]
        points = " ".join(f"{at:g},{y(ratio):g}" for at, ratio in zip(x, ratios, strict=True))
        ends[name] = y(ratios[-1])
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5" '
            f'clip-path="url(#field)"/>'
        )
    parts.append(f'<path d="M{left} {y(1)}H{right}" stroke="{OURS}" stroke-width="4"/>')
    colours = {"ddl": OURS, **dict(zip(names, PEERS, strict=True))}
    for name, at in spread(ends, 17).items():
        parts.append(text(right + 8, at + 5, names.get(name, name), fill=colours[name]))
    return picture("Allreduce on one host, two ranks, beside its peers", height, parts)


@dataclass(frozen=True)
class Series:
    """What is shown of each row, with its mark."""

    name: str
    shape: str
    colour: str
    value: Callable[[Row], float | None]


def draw_rows(
    title: str,
    axis: str,
    rows: Sequence[tuple[str, Row]],
    series: Sequence[Series],
    scale: Scale,
    ticks: Sequence[float],
) -> str:
    """A line for each row of a table, with a mark for each series.

    Args:
        rows: the name of each, and its cells.
    """
    top, step = 68, 25
    bottom = top + step * len(rows)
    parts = [text(4, 18, axis)]
    at = 4.0
    for one in series:
        parts += [mark(one.shape, at + 7, 38, one.colour), text(at + 19, 43, one.name)]
        at += 40 + 7.6 * len(one.name)
    for tick in ticks:
        parts += [
            line(scale(tick), top - 12, scale(tick), bottom - 8, 0.2),
            text(scale(tick), bottom + 12, f"{tick:g}", "middle"),
        ]
    for i, (name, row) in enumerate(rows):
        y = top + step * i
        parts += [
            text(scale.start - 14, y + 5, name, "end"),
            line(scale.start, y, scale.end, y, 0.1),
        ]
        found = [(one, one.value(row)) for one in series]
        parts += [
            mark(one.shape, scale(value), y, one.colour)
            for one, value in reversed(found)
            if value is not None
        ]
    return picture(title, bottom + 24, parts)


def draw_between_hosts(page: str) -> str:
    """The times of ddl, the best MPI and Gloo by the lower bound, in each layout and order."""
    rows = table(page, "ddl-topology")
    mpi = [name for name in rows[0] if re.match(r"(mpich|openmpi|intelmpi)(-tuned)?$", name)]

    def best(peers: Sequence[str], row: Row) -> float | None:
        times = [time for name in peers if (time := number(row[name])) is not None]
        return min(times) / float(row["bound"]) if times else None

    def name(row: Row) -> str:
        layout = re.sub(r"^(drawn)-.*", r"\1", row["layout"])
        return f"{layout}, {row['order'].partition(':')[0]}"

    return draw_rows(
        "Allreduce between hosts, by the lower bound",
        "time by the lower bound; 1 is the least that is possible",
        [(name(row), row) for row in rows],
        [
            Series("ddl", "diamond", OURS, partial(best, ["ddl-topology"])),
            Series("the best MPI", "circle", PEERS[0], partial(best, mpi)),
            Series("Gloo", "square", PEERS[3], partial(best, ["gloo"])),
        ],
        Scale(1, 8, 212, 505),
        (1, 1.5, 2, 3, 4, 6, 8),
    )


def draw_lms(page: str) -> str:
    """The speed of training beyond the memory, by the speed with memory for everything."""
    rows = [row for row in table(page, "R(M)") if row["R(M)"] and float(row["D/M"]) > 1]

    def share(column: str, row: Row) -> float | None:
        return None if "does not fit" in row[column] else number(row[column])

    return draw_rows(
        "Large Model Support: the speed beyond the memory",
        "speed, by that of a device with memory for everything",
        [(f"{row['model']}, {row['D/M']} times", row) for row in rows],
        [
            Series("lms", "diamond", OURS, partial(share, "lms")),
            Series("its bound", "bar", "currentColor", partial(share, "R(M)")),
            Series("checkpointing", "square", PEERS[3], partial(share, "checkpointing")),
            Series("save_on_cpu", "circle", PEERS[0], partial(share, "save_on_cpu")),
        ],
        Scale(0, 1, 212, 505, is_log=False),
        (0, 0.25, 0.5, 0.75, 1),
    )


#: The name of a picture → its function, and the page of results that it draws.
PICTURES: Mapping[str, tuple[Callable[[str], str], str]] = {
    "one-host": (draw_one_host, "2026-11-24-bench.md"),
    "between-hosts": (draw_between_hosts, "2026-11-24-bench.md"),
    "lms": (draw_lms, "2026-11-25-lms.md"),
}

PLACE = re.compile(r"^<!-- picture: (\S+) -->$", re.MULTILINE)


def with_pictures(markdown: str) -> str:
    """A page's text with its pictures in their places."""

    def drawn(match: re.Match[str]) -> str:
        if match[1] not in PICTURES:
            raise ValueError(f"there is no picture {match[1]!r}; there are: {', '.join(PICTURES)}")
        draw, page = PICTURES[match[1]]
        return f"<figure>{draw(page)}</figure>"

    return PLACE.sub(drawn, markdown)
