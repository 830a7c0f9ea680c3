"""The arithmetic of bench_ddp: gains, the bar, and what falls short of it."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from rich.console import Console

from bench.bench_ddp import BAR, PEERS, checks, gain, make_table, median, rows_of
from bench.check import missed
from bench.lab.layout import parse_layout
from bench.lab.training import Training

MIB = 1 << 20
LAYOUTS = {name: parse_layout(name) for name in ("racks-2x4", "flat-4")}


def run(
    backend: str, *times: float, order: str = "sorted", loss: float = 1.0, layout: str = "racks-2x4"
) -> Training:
    return Training(layout, order, backend, 4 * MIB, times, loss=loss)


def shortfalls(runs: list[Training]) -> list[str]:
    return missed(checks(runs, LAYOUTS))


def test_the_gain_is_of_medians_over_all_repetitions() -> None:
    runs = [run("ddl", 1, 2), run("gloo", 8, 9), run("ddl", 3), run("gloo", 10)]
    backends = rows_of(runs)["racks-2x4", "sorted"]
    assert median(backends["ddl"]) == 2
    assert gain(backends, "ddl") == 4.5
    assert math.isnan(gain({"ddl": [run("ddl", 1)]}, "ddl"))


def test_the_gain_is_over_the_best_peer() -> None:
    names = {"horovod-ddl": 1, "horovod-mpi": 3, "horovod-gloo": 2}
    backends = {name: [run(name, seconds)] for name, seconds in names.items()}
    assert gain(backends, "horovod-ddl") == 2
    failed = Training("racks-2x4", "sorted", "horovod-mpi", 4 * MIB, failure="exit 1: no")
    assert math.isnan(gain({**backends, "horovod-mpi": [failed]}, "horovod-ddl"))


@pytest.mark.parametrize("ours", PEERS)
@pytest.mark.parametrize("order", ["sorted", "interleaved"])
def test_a_row_below_the_bar_is_named(ours: str, order: str) -> None:
    bar = BAR[ours][order]
    peers = PEERS[ours]
    mine = run(ours, 1, order=order)
    assert shortfalls([mine, *(run(peer, bar, order=order) for peer in peers)]) == []
    less = [mine, *(run(peer, bar - 0.05, order=order) for peer in peers)]
    assert shortfalls(less) == [
        f"racks-2x4 {order}: {' and '.join(peers)} at best takes {bar - 0.05:.2f} x as long as "
        f"{ours}; at least {bar:g}"
    ]


def test_a_peer_near_the_bound_cannot_be_beaten_by_far() -> None:
    runs = [run("ddl", 0.71), run("gloo", 0.9)]  # the bound is 0.70 s
    (check,) = checks(runs, LAYOUTS)
    assert check.unreachable == (
        "unreachable: gloo at best takes 1.28 x the bound of a step's allreduce"
    )


def test_other_orders_and_flat_networks_have_no_bar() -> None:
    others: list[dict[str, Any]] = [{"order": "random:1"}, {"layout": "flat-4"}]
    for options in others:
        assert shortfalls([run("ddl", 2, **options), run("gloo", 1, **options)]) == []


def test_failures_and_losses_that_differ_fall_short() -> None:
    failed = Training("racks-2x4", "sorted", "ddl", 4 * MIB, failure="exit 1: no")
    lines = shortfalls([failed, run("gloo", 1)])
    assert lines == [
        "racks-2x4 sorted 4 MiB ddl: exit 1: no",
        "racks-2x4 sorted: gloo at best takes nan x as long as ddl; at least 1.35",
    ]
    runs = [run("ddl", 1, loss=1.0), run("gloo", 2, loss=1.01)]
    assert shortfalls(runs) == ["racks-2x4 sorted: the losses differ: 1.0 to 1.01"]


def test_the_table() -> None:
    out = io.StringIO()
    runs = [run("ddl", 0.7), run("gloo", 1.4), Training("racks-2x4", "interleaved", "ddl", MIB)]
    Console(file=out, width=110).print(make_table(runs))
    text = out.getvalue()
    assert "racks-2x4, sorted, 4 MiB" in text
    assert "2.00" in text
    assert "failed" in text
