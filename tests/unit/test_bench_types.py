"""The benchmark of 16-bit floats: what falls short."""

from __future__ import annotations

import math

from bench import bench_types
from bench.check import missed
from bench.distance import Batch, Distances

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


def test_turns_with_far_processors_do_not_count() -> None:
    distances = Distances(range(6), [60e-9] * 4 + [400e-9] * 2)
    near, far = Batch(0.5, 2.5, 90e-6), Batch(3.5, 5.0, 400e-6)
    turns = [
        {"float32": near, "float16": near, "bfloat16": near},
        {"float32": near, "float16": far, "bfloat16": far},
    ]
    times = bench_types.times_of(turns, distances)
    assert {name: len(us) for name, us in times.items()} == dict.fromkeys(bench_types.TYPES, 1)
    assert math.isclose(times["float16"][0], 90)


def test_a_size_that_was_never_measured_near_falls_short() -> None:
    times = {(2, MIB, name): [math.nan] for name in bench_types.TYPES}
    assert len(missed(bench_types.checks(times))) == 2
