"""What bench_collectives demands of its cells, and how fast a skewed exchange can be."""

from __future__ import annotations

import pytest

from bench.bench_collectives import bound, checks
from bench.check import missed
from bench.lab.bound import GOODPUT, bound_of, exchange_bound
from bench.lab.cell import Cell
from bench.lab.layout import parse_layout
from bench.lab.skewed import HOT, SKEW

MIB = 1 << 20
RACKS = parse_layout("racks-2x4")


def cell(peer: str, seconds: float, failure: str = "") -> Cell:
    """A cell whose bound is a second."""
    times = () if failure else (seconds,)
    return Cell("racks-2x4", "sorted", 4 * MIB, peer, 1.0, times, failure=failure)


def test_ddl_s_alone_are_judged() -> None:
    fine = [cell("broadcast by ddl", 1.09), cell("broadcast by gloo", 4.0)]
    assert missed(checks(fine)) == []
    slow = [cell("broadcast by ddl", 1.5), cell("broadcast by gloo", 1.2)]
    assert missed(checks([*slow, cell("all_gather by ddl", 0, "exit 1: no")])) == [
        "racks-2x4 sorted 4 MiB broadcast by ddl: 1.50 x the lower bound; at most 1.1",
        "racks-2x4 sorted 4 MiB broadcast by ddl: Gloo takes 0.80 x as long; at least 1",
        "racks-2x4 sorted 4 MiB all_gather by ddl: exit 1: no",
    ]


def seconds(nbytes: float, mbit: float) -> float:
    return nbytes * 8 / (mbit * 1e6 * GOODPUT)


def test_a_broadcast_crosses_each_link_once() -> None:
    assert bound_of("broadcast", RACKS, MIB) == pytest.approx(seconds(MIB, 50))
    assert bound_of("broadcast", parse_layout("flat-8"), MIB) == pytest.approx(seconds(MIB, 250))


def test_an_even_exchange_is_an_all_to_all() -> None:
    for name in ("racks-2x4", "flat-8", "ragged-5+2"):
        layout = parse_layout(name)
        n = layout.ranks
        rows = [[MIB / n] * n] * n
        even = exchange_bound(layout, "interleaved", rows)
        assert even == pytest.approx(bound_of("all_to_all", layout, MIB))


def test_a_skewed_exchange_is_bound_by_the_link_into_the_hot_ranks() -> None:
    weights = HOT * SKEW + 8 - HOT
    into_rack = 4 * MIB * (HOT * SKEW + 4 - HOT) / weights
    assert bound("skewed", RACKS, "sorted", MIB) == pytest.approx(seconds(into_rack, 50))
    into_host = 7 * MIB * SKEW / weights
    flat = bound("skewed", parse_layout("flat-8"), "sorted", MIB)
    assert flat == pytest.approx(seconds(into_host, 250))
