"""The benchmark of 16-bit floats: what falls short."""

from __future__ import annotations

from bench import bench_types
from bench.check import missed

MIB = 1 << 20


def test_what_is_slower_than_the_bar_is_named() -> None:
    times = {
        (2, MIB, "float32"): [90.0],
        (2, MIB, "float16"): [100.0],
        (2, MIB, "bfloat16"): [101.0],
    }
    (line,) = missed(bench_types.checks(times))
    assert line == "2 ranks, 1048576 bytes: bfloat16 has 0.89 x float32's rate; at least 0.9"


def test_types_are_compared_within_a_turn() -> None:
    times = {(2, MIB, "float32"): [90.0, 900.0, 90.0], (2, MIB, "float16"): [100.0, 950.0, 950.0]}
    assert bench_types.rate(times, 2, MIB, "float16") == 0.9


def test_the_table_compares_with_float32() -> None:
    times = {
        (2, MIB, "float32"): [90.0],
        (2, MIB, "float16"): [100.0],
        (2, MIB, "bfloat16"): [45.0],
    }
    cells = [list(column.cells) for column in bench_types.table_of(2, times).columns]
    assert cells == [["1048576"], ["90.0"], ["100.0"], ["45.0"], ["0.90 x"], ["2.00 x"]]
