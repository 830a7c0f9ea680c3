"""Which cells bench_lab measures: those of half an hour by default, of many hours with --all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bench.lab.bar import JUDGED
from bench.lab.bound import lower_bound
from bench.lab.layout import SHAPES, Layout, parse_layout

DAILY = (
    ("racks-2x4", "sorted"),
    ("racks-2x4", "interleaved"),
    ("racks-2x4", "random:1"),
    ("racks-2x2x2", "sorted"),
    ("racks-2x2x2", "interleaved"),
    ("racks-2x3", "random:1"),
    ("ragged-3+1", "sorted"),
    ("ragged-5+2", "random:1"),
    ("slow-host", "sorted"),
    ("flat-8", "sorted"),
)
"""A layout and order for each row of the bar, and drawn ones beside them."""
DAILY_PEERS = (
    *JUDGED,
    "mpich-tuned",
    "openmpi",
    "openmpi-tuned",
    "intelmpi",
    "intelmpi-tuned",
    "gloo",
)
"""Each was the best of all somewhere; the others never."""
QUICK = (
    ("racks-2x4", "interleaved"),
    ("racks-2x2x2", "random:1"),
    ("ragged-3+1", "sorted"),
    ("slow-host", "sorted"),
)
ORDERS = ("sorted", "interleaved", "random:1", "random:2", "random:3")


@dataclass(frozen=True)
class Extent:
    """How much is measured where the command line does not say.

    Attributes:
        peers: the libraries; none: all.
        drawn: layouts drawn at random.
        repetitions: runs of a cell.
        iterations: timed calls in a run of another library; ours has 7.
    """

    peers: tuple[str, ...]
    drawn: int
    repetitions: int
    iterations: int


EXTENTS = {
    "daily": Extent(DAILY_PEERS, 1, 1, 3),
    "all": Extent((), 3, 3, 7),
    "quick": Extent(("ddl-topology",), 0, 1, 7),
}


def orders_of(layout: Layout) -> tuple[str, ...]:
    """All orders of a layout: one, where all ranks are alike."""
    alike = len(layout.racks) == 1 and layout.ranks_per_host == 1
    return ("sorted",) if alike else ORDERS


def size_of(layout: Layout) -> int:
    """The size by default: a lower bound near 0.7 s is long enough to be stable."""
    return min((4 << 20, 8 << 20, 16 << 20), key=lambda size: abs(lower_bound(layout, size) - 0.7))


def cells_of(
    extent: str, given: Iterable[Layout], drawn: Iterable[Layout], orders: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Layouts and orders.

    Args:
        given: layouts of the command line, in place of the extent's own.
        orders: of the command line, in place of a layout's own.
    """
    given, drawn, orders = list(given), list(drawn), tuple(orders)
    if not given and extent != "all":
        pairs: tuple[tuple[str, str], ...] = QUICK if extent == "quick" else DAILY
        if orders:
            names = dict.fromkeys(name for name, _ in pairs)
            pairs = tuple((name, order) for name in names for order in orders)
        yield from pairs
    else:
        for layout in given or map(parse_layout, SHAPES):
            yield from ((layout.name, order) for order in orders or orders_of(layout))
    for layout in drawn:
        own = orders_of(layout) if extent == "all" else orders_of(layout)[-1:]
        yield from ((layout.name, order) for order in orders or own)
