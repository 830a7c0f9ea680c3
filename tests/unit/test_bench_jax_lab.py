"""What bench_jax_lab demands of its cells."""

from __future__ import annotations

from bench.bench_jax_lab import checks
from bench.check import missed
from bench.lab.cell import Cell


def cell(peer: str, seconds: float, failure: str = "") -> Cell:
    """A cell whose bound is a second."""
    times = () if failure else (seconds,)
    return Cell("racks-2x4", "sorted", 4 << 20, peer, 1.0, times, failure=failure)


def test_ddl_s_alone_are_judged() -> None:
    assert missed(checks([cell("psum by ddl", 1.07), cell("psum by gloo", 9.0)])) == []
    assert missed(
        checks([cell("all_gather by ddl", 1.5), cell("psum by ddl", 0, "exit 1: no")])
    ) == [
        "racks-2x4 sorted 4 MiB all_gather by ddl: 1.50 x the lower bound; at most 1.08",
        "racks-2x4 sorted 4 MiB psum by ddl: exit 1: no",
    ]
