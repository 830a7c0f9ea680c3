"""The arithmetic of bench_keras: gains, the bar, and what falls short of it."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.bench_keras import Training, gain, make_table, rows_of, shortfalls


def runs(ddl: float, ranks: int = 2) -> list[Training]:
    speeds = {
        "ddl": (ddl, ddl, 1),
        "horovod-ddl": (50, 100, 150),
        "horovod-mpi": (80, 80, 80),
        "horovod-gloo": (75, 75, 75),
        "distributed": (90, 80, 1000),
    }
    return [
        Training("lenet", ranks, way, speed) for way, three in speeds.items() for speed in three
    ]


def test_the_gain_is_over_the_best_median() -> None:
    ways = rows_of(runs(150))["lenet", 2]
    assert gain(ways, "ddl") == 1.5
    assert gain(ways, "horovod-ddl") == 1.25


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_row_below_the_bar_is_named(ranks: int) -> None:
    assert shortfalls(runs(100, ranks)) == []
    assert shortfalls([*runs(100, 3), *runs(99, ranks)]) == [
        f"lenet, {ranks} ranks: ddl is 0.99 x the best, must be 1.0 x"
    ]


def test_horovod_on_ddl_has_a_bar_of_its_own() -> None:
    faster = [Training("lenet", 2, "horovod-gloo", 101.0)] * 7
    assert shortfalls([*runs(150), *faster]) == [
        "lenet, 2 ranks: horovod-ddl is 0.99 x the best, must be 1.0 x"
    ]


def test_a_run_that_was_interrupted_has_a_table_and_no_bar() -> None:
    begun = [Training("lenet", 2, "ddl", 1.0), Training("lenet", 2, "horovod-mpi", 2.0)]
    assert shortfalls(begun) == []
    assert "0.50" in shown(begun)
    assert "lenet, 2 ranks" in shown(begun[:1])


def test_the_table() -> None:
    rows = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in shown(runs(150)).splitlines()
        if "│" in line
    ]
    assert ["ddl", "150.0", "1.0", "150.0", "3", "1.50"] in rows
    assert ["horovod-ddl", "100.0", "50.0", "150.0", "3", "1.25"] in rows
    assert ["horovod-mpi", "80.0", "80.0", "80.0", "3", ""] in rows


def shown(given: list[Training]) -> str:
    text = io.StringIO()
    Console(file=text, width=100).print(make_table(given))
    return text.getvalue()
