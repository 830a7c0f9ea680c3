"""What bench_small demands of its cells."""

from __future__ import annotations

from bench.bench_small import checks
from bench.check import missed
from bench.lab.cell import Cell


def cell(peer: str, *times: float, failure: str = "") -> Cell:
    """A cell of 4 KiB."""
    return Cell("flat-8", "sorted", 4096, peer, 1.0, times, failure=failure)


def test_the_best_mpi_is_the_measure() -> None:
    others = [cell("intelmpi", 2.0, 2.0, 3.0), cell("mpich", 1.9, 2.1, 9.0), cell("gloo", 1.0)]
    assert missed(checks([cell("ddl", 1.0, 2.0, 3.0), *others])) == []
    assert missed(checks([cell("ddl", 3.0, 3.0, 6.0), *others])) == [
        "flat-8 sorted 4 KiB ddl: 1.50 x the median of the best MPI; at most 1",
        "flat-8 sorted 4 KiB ddl: 2.00 x the 99th percentile of the best MPI; at most 1",
    ]


def test_runs_that_fail() -> None:
    """Ours falls short; an MPI's is no measure."""
    works, fails = cell("mpich", 2.0), cell("intelmpi", failure="unavailable: no")
    assert missed(checks([cell("ddl", failure="exit 1: no"), works, fails])) == [
        "flat-8 sorted 4 KiB ddl: exit 1: no"
    ]
    assert missed(checks([cell("ddl", 1.0), works, fails])) == []
    assert checks([cell("ddl", 1.0), fails]) == []
