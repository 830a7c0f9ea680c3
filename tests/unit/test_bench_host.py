"""bench_host: its table and what it demands."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bench.bench_host import make, table_of
from bench.check import missed
from bench.lab.bar_host import demands, host_checks

MIB = 1 << 20


def test_the_bar_goes_by_ranks_and_size() -> None:
    every = dict.fromkeys(("intelmpi", "oneccl", "openmpi", "mpich", "gloo"), 1.0)
    assert demands(4, 4)[1] == every
    assert demands(2, 4 << 10)[1] == {"openmpi": 1.0}
    assert demands(2, MIB)[1] == {key: 1.0 if key == "intelmpi" else 1.4 for key in every}
    assert demands(2, 64 * MIB)[1]["copy"] == 0.65
    assert len({demands(*cell)[0] for cell in ((4, 4), (2, 4), (2, MIB), (2, 64 * MIB))}) == 4


def test_each_miss_is_named() -> None:
    times = {
        (2, MIB, "ddl"): 200e-6,
        (2, MIB, "intelmpi"): 210e-6,
        (2, MIB, "openmpi"): 250e-6,
        (2, 64 * MIB, "ddl"): 20e-3,
        (2, 64 * MIB, "copy"): 16e-3,
        (4, MIB, "openmpi"): 1.0,  # libddl was not measured
    }
    assert missed(host_checks(times)) == [
        "2 ranks, 1048576 bytes: openmpi takes 1.25 x as long; at least 1.4"
    ]


def test_a_peer_near_the_memorys_rate_cannot_be_beaten_by_far() -> None:
    peers = {"ddl": 20e-3, "copy": 19e-3, "mpich": 40e-3, "openmpi": 59e-3}
    checks = host_checks({(2, 64 * MIB, name): time for name, time in peers.items()})
    short = {check.what.split()[0]: check.unreachable for check in checks if not check.met}
    assert short == {
        "mpich": "unreachable: mpich takes 2.11 x as long as copying the buffer once",
        "openmpi": "",  # 3.1 times
    }


def test_the_table_has_a_row_for_each_size() -> None:
    times = {
        (2, 64 * MIB, "ddl"): 20e-3,
        (2, 64 * MIB, "mpich"): 33e-3,
        (2, 64 * MIB, "copy"): 16e-3,
        (4, 4, "ddl"): 1e-6,
    }
    text = io.StringIO()
    times[2, 64 * MIB, "exchange"] = 3e-3
    names = ["ddl", "mpich", "copy", "exchange"]
    Console(file=text, width=130).print(table_of(2, times, names))
    (row,) = [line for line in text.getvalue().splitlines() if "67108864" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == [
        *("67108864", "20000.0", "33000.0", "16000.0", "3000.0", "1.65 x", "80%", "95%")
    ]


def test_an_unknown_library() -> None:
    with pytest.raises(ValueError, match="library nccl: not one of ddl, intelmpi, oneccl"):
        make("nccl", None, None, None)
