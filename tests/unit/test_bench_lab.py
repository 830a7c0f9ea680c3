"""The lab's arithmetic: layouts, orders, the lower bound, the table and the bar."""

from __future__ import annotations

import argparse
import io
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from bench.check import Check, missed
from bench.command import parse_size
from bench.lab.bar import (
    FLAT,
    MIXED,
    RAGGED,
    SHAPED,
    SLOW,
    SORTED,
    Demand,
    checks,
    demands,
    uplink_limit,
)
from bench.lab.bound import COLLECTIVES, GOODPUT, bound_of, bounds, lower_bound
from bench.lab.cell import Cell
from bench.lab.layout import SHAPES, Layout, parse_layout, rank_order, topology_yaml
from bench.lab.network import Lab
from bench.lab.plan import DAILY, ORDERS, QUICK, cells_of, orders_of, size_of
from bench.lab.report import failures, make_table, percentile

MIB = 1 << 20


def test_layouts_are_what_their_names_say() -> None:
    assert [parse_layout(name).racks for name in SHAPES] == [
        (4, 4),
        (2, 2),
        (3, 3),
        (3, 1),
        (5, 2),
        (4,),
        (8,),
        (4,),
    ]
    assert parse_layout("racks-2x2x2").ranks == 8
    assert parse_layout("ragged-1+2+3x2").racks == (1, 2, 3)
    slow = parse_layout("slow-host", 250)
    assert [slow.mbit(host) for host in range(4)] == [500, 500, 500, 125]


@pytest.mark.parametrize("name", ["", "racks-2", "racks-0x4", "flat-1", "ragged-3", "ragged-3+0"])
def test_names_that_are_no_layout(name: str) -> None:
    with pytest.raises(ValueError, match=f"layout {name.replace('+', '.')}: "):
        parse_layout(name)


def test_hosts_are_numbered_rack_by_rack() -> None:
    layout = parse_layout("ragged-3+1+2")
    assert [layout.rack_of(host) for host in range(6)] == [0, 0, 0, 1, 2, 2]
    assert [list(layout.in_rack(rack)) for rack in range(3)] == [[0, 1, 2], [3], [4, 5]]


def test_ranks_are_placed_in_each_order() -> None:
    layout = parse_layout("racks-2x2x2")
    assert rank_order(layout, "sorted") == [0, 0, 1, 1, 2, 2, 3, 3]
    assert rank_order(layout, "interleaved") == [0, 2, 1, 3, 0, 2, 1, 3]
    assert rank_order(layout, "random:1") != rank_order(layout, "random:2")
    assert rank_order(parse_layout("ragged-3+1"), "interleaved") == [0, 3, 1, 2]
    with pytest.raises(ValueError, match="order backwards: not sorted"):
        rank_order(layout, "backwards")


@given(st.integers(0, 10**6), st.sampled_from(["sorted", "interleaved", "random:3"]))
def test_every_host_gets_its_ranks(seed: int, order: str) -> None:
    layout = parse_layout(f"drawn-{seed}")
    counts = Counter(rank_order(layout, order))
    assert counts == dict.fromkeys(range(layout.hosts), layout.ranks_per_host)


def test_defaults_of_a_layout() -> None:
    sizes = {name: size_of(parse_layout(name)) // MIB for name in SHAPES}
    assert {name for name, size in sizes.items() if size != 4} == {
        "slow-host",
        "flat-8",
        "flat-4x2",
    }
    assert orders_of(parse_layout("flat-8")) == ("sorted",)
    assert orders_of(parse_layout("flat-4x2")) == ORDERS


def test_what_is_measured() -> None:
    drawn, given = [parse_layout("drawn-7")], [parse_layout("flat-8"), parse_layout("racks-2x3")]
    (order,) = {order for name, order in cells_of("daily", [], drawn, []) if name == "drawn-7"}
    assert order == ORDERS[-1]
    assert list(cells_of("daily", [], drawn, []))[:-1] == list(DAILY)
    assert list(cells_of("quick", [], [], [])) == list(QUICK)
    assert len(list(cells_of("all", [], drawn, []))) == 2 + 7 * len(ORDERS)
    mine = [("flat-8", "sorted"), *(("racks-2x3", order) for order in ORDERS)]
    for extent in ("daily", "all"):
        assert list(cells_of(extent, given, [], [])) == mine
        named = [(name, "random:9") for name in ("flat-8", "racks-2x3", "drawn-7")]
        assert list(cells_of(extent, given, drawn, ["random:9"])) == named


def test_the_daily_cells_have_every_row_of_the_bar() -> None:
    found = {wanted.row for name, order in DAILY for wanted in demands(parse_layout(name), order)}
    assert found == {SHAPED, SORTED, MIXED, RAGGED, SLOW, FLAT}


def test_a_size_is_read() -> None:
    assert [parse_size(text) for text in ("12", "64K", "4M")] == [12, 64 << 10, 4 << 20]
    for text in ("", "0", "4G", "1.5M", "-1"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_size(text)


@pytest.mark.parametrize(("racks", "least"), [("racks-2x4", 1.0), ("racks-3x2", 4 / 3)])
def test_what_an_uplink_may_carry_depends_on_the_number_of_racks(racks: str, least: float) -> None:
    assert uplink_limit(parse_layout(racks, 250, 50)) == pytest.approx(1.03 * least)


def test_bound_of_two_racks_is_the_uplink() -> None:
    # 16 MiB at 200 Mbit/s: 671 ms of payload.
    layout = parse_layout("racks-2x4", 1000, 200)
    assert lower_bound(layout, 16 * MIB) == pytest.approx(0.67109 / GOODPUT, rel=1e-4)


def test_bounds_of_jax_s_collectives_are_what_crosses_an_uplink() -> None:
    layout, second = parse_layout("racks-2x4"), 50e6 * GOODPUT / 8
    found = {name: bound_of(name, layout, MIB) * second / MIB for name in COLLECTIVES}
    half = {"all_gather": 0.5, "psum_scatter": 0.5}
    assert found == pytest.approx({"psum": 1.0, "all_to_all": 2.0} | half)


def test_bound_of_a_gathering_is_the_slow_host_s_link() -> None:
    layout = parse_layout("slow-host")
    expected = 0.75 * MIB * 8 / (125e6 * GOODPUT)
    assert bound_of("all_gather", layout, MIB) == pytest.approx(expected)


def test_bound_of_a_flat_network_is_the_rings() -> None:
    ring = 2 * 16 * MIB * 8 / (500e6 * GOODPUT) * 7 / 8
    assert lower_bound(parse_layout("flat-8", 500), 16 * MIB) == pytest.approx(ring)
    two = parse_layout("flat-4x2", 500)
    assert lower_bound(two, MIB) == lower_bound(parse_layout("flat-4", 500), MIB)


def test_bound_with_a_slow_host_is_its_link() -> None:
    found = bounds(parse_layout("slow-host", 250), 8 * MIB)
    assert max(found, key=lambda why: found[why]) == "a host's link"
    assert found["a host's link"] == pytest.approx(8 * MIB * 8 / (125e6 * GOODPUT))


@given(st.integers(0, 10**6))
def test_bound_falls_when_a_link_is_faster(seed: int) -> None:
    name = f"drawn-{seed}"
    slower, faster = parse_layout(name, 100, 30), parse_layout(name, 200, 60)
    assert lower_bound(slower, MIB) == pytest.approx(2 * lower_bound(faster, MIB))


def test_topology_of_racks() -> None:
    found = yaml.safe_load(topology_yaml(Layout("x", (2, 1), 250, 50, {1: 125})))
    assert found == {
        "name": "cluster",
        "children": [
            {
                "name": "rack0",
                "bandwidth": 0.05,
                "latency": 50,
                "children": [
                    {"host": "h0", "bandwidth": 0.25, "latency": 50},
                    {"host": "h1", "bandwidth": 0.125, "latency": 50},
                ],
            },
            {
                "name": "rack1",
                "bandwidth": 0.05,
                "latency": 50,
                "children": [{"host": "h2", "bandwidth": 0.25, "latency": 50}],
            },
        ],
    }


def test_topology_of_a_flat_network_has_no_racks() -> None:
    found = yaml.safe_load(topology_yaml(parse_layout("flat-3")))
    assert [child["host"] for child in found["children"]] == ["h0", "h1", "h2"]


def test_uplinks_are_read_from_the_switches_counters() -> None:
    text = (
        "Inter-|   Receive            |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets\n"
        "   up0: 100 1 0 0 0 0 0 0 200 2 0 0 0 0 0 0\n"
        " down0: 200 2 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n"
        "   up1:7 1 0 0 0 0 0 0 9 2 0 0 0 0 0 0\n"
    )
    lab = Lab(parse_layout("racks-2x2"), Path("/nowhere"))
    assert lab.uplink_bytes(text) == {
        "rack0 in": 100,
        "rack0 out": 200,
        "rack1 in": 7,
        "rack1 out": 9,
    }
    without = lab.uplink_bytes(text.replace("7 1 0", "166 2 0"), headers=False)
    assert without["rack1 in"] == 34


def cell(peer: str, *times: float, layout: str = "racks-2x4", **other: object) -> Cell:
    values = {"order": "sorted", "nbytes": 4 * MIB, "bound": 0.7, "uplink": 1.01, **other}
    return Cell(layout=layout, peer=peer, times=times, **values)  # type: ignore[arg-type]


def shown(cells: list[Cell]) -> list[list[str]]:
    console = Console(file=io.StringIO(), width=120)
    console.print(make_table(cells))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    return [[part.strip() for part in line.strip("│").split("│")] for line in lines if "│" in line]


def test_the_table_has_a_row_for_each_way() -> None:
    cells = [
        cell("ddl", 0.7, 0.72, cores=1.2),
        cell("gloo", failure="not done after 60 s", orphans=2),
        cell("ddl", 0.74, cores=1.4),
        cell("mpich", 1.44),
    ]
    assert shown(cells) == [
        ["racks-2x4, sorted, 4 MiB", "bound 700", "", "", "", "", "", ""],
        ["ddl", "720", "700", "740", "1.03", "1.01", "1.3", "1.00"],
        ["gloo", "failed", "", "", "", "", "", ""],
        ["mpich", "1440", "1440", "1440", "2.06", "1.01", "0.0", "2.00"],
    ]
    assert failures(cells) == [
        "racks-2x4 sorted 4 MiB gloo: not done after 60 s",
        "racks-2x4 sorted 4 MiB gloo: left 2 processes",
    ]


def test_p95_is_a_time_that_was_measured() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(100)], 0.95) == 95.0


def shortfalls(cells: list[Cell], quick: bool = False) -> list[str]:
    return missed(checks(cells, quick))


def test_bar_is_met() -> None:
    assert shortfalls([cell("ddl-topology", 0.7), cell("mpich", 1.0), cell("gloo", 1.2)]) == []


def test_bar_names_each_miss() -> None:
    cells = [cell("ddl-topology", 0.8, uplink=1.5), cell("mpich", 0.88), cell("gloo", 4.0)]
    assert shortfalls(cells) == [
        "racks-2x4 sorted 4 MiB ddl-topology: an uplink carries 1.50 x the buffer; at most 1.03",
        "racks-2x4 sorted 4 MiB ddl-topology: 1.14 x the lower bound; at most 1.07",
        "racks-2x4 sorted 4 MiB ddl-topology: the best peer takes 1.10 x as long; at least 1.35",
    ]
    assert shortfalls(cells, quick=True) == [
        "racks-2x4 sorted 4 MiB ddl-topology: an uplink carries 1.50 x the buffer; at most 1.03"
    ]


def test_what_knows_no_topology_is_not_judged() -> None:
    assert checks([cell("ddl", 2.8, uplink=4.0), cell("gloo", 1.4)]) == []


def test_the_probed_row_is_judged_as_the_told_one_and_for_its_probe() -> None:
    found: dict[str, Any] = {"probe_seconds": 11.0, "probe_wrong": ("racks h0+h1, not h0+h2",)}
    cells = [cell("ddl-probe", 0.8, **found), cell("gloo", 2.0)]
    assert shortfalls(cells) == [
        "racks-2x4 sorted 4 MiB ddl-probe: 1.14 x the lower bound; at most 1.07",
        "racks-2x4 sorted 4 MiB ddl-probe: the probe takes 11.00 s; at most 10",
        "racks-2x4 sorted 4 MiB ddl-probe: racks h0+h1, not h0+h2",
    ]
    assert shortfalls([cell("ddl-probe", 0.7, probe_seconds=9.0), cell("gloo", 2.0)]) == []


def test_a_run_that_failed_is_short_of_the_bar() -> None:
    cells = [cell("ddl-topology", 0.7), cell("ddl-topology", failure="wrong sums")]
    assert shortfalls(cells) == ["racks-2x4 sorted 4 MiB ddl-topology: wrong sums"]


def test_small_buffers_are_not_judged() -> None:
    assert shortfalls([cell("ddl-topology", 9.0, nbytes=MIB)]) == []
    assert shortfalls([cell("ddl-topology", 9.0, nbytes=MIB)], quick=True) != []


def test_a_peer_near_the_bound_cannot_be_beaten_by_far() -> None:
    rows = [cell("ddl-topology", 0.75), cell("mpich", 1.05)]
    found: list[Check] = [check for check in checks(rows, False) if check.row == SORTED]
    assert [check.unreachable for check in found] == [""]  # it is met
    rows = [replace(each, order="interleaved") for each in rows]
    (check,) = (check for check in checks(rows) if check.row == MIXED)
    assert check.unreachable == (
        "unreachable: the best peer is at 1.50 of the bound, "
        "so a library at the bound would not reach it"
    )


def test_demands_differ_by_layout() -> None:
    def demanded(name: str, order: str) -> dict[str, Demand]:
        return {wanted.row: wanted for wanted in demands(parse_layout(name), order)}

    assert demanded("ragged-3+1", "sorted")[RAGGED].mpi == 4
    assert demanded("racks-2x3", "sorted")[RAGGED].gloo == 1.5
    assert demanded("racks-2x3", "sorted")[SHAPED].bound == math.inf
    assert demanded("racks-2x4", "random:1")[MIXED].peer == 4
    assert demanded("racks-2x4", "random:1")[SHAPED].bound == 1.07
    assert demanded("racks-2x2x2", "sorted")[SORTED].peer == 1.75
    assert demanded("slow-host", "sorted")[SLOW].peer == 1.4
    assert demanded("flat-8", "sorted")[FLAT].bound == math.inf
    assert demanded("flat-4x2", "sorted") == {}
