"""What tests/bench/bench_requeue.py finds wrong with an interrupted job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench.bench_requeue import checks, make_table
from bench.check import missed
from bench.lab.requeue import SAVE_EVERY, Cycle

GOOD = Cycle("USR1", 2.0, 40, 40, 40, 0, 0, True, True, 4.0)
KILLED = replace(GOOD, way="kill all", saved=39, resumed=39, half=1, requeued=False)


def test_good_ones_are_good() -> None:
    early = replace(GOOD, made=42, requeued=False)  # the signal came before the program knew it
    assert missed(checks([GOOD, KILLED, early], same=True)) == []


@pytest.mark.parametrize(
    ("cycle", "words"),
    [
        (replace(GOOD, saved=39, resumed=39), "1 steps are lost; at most 0"),
        (replace(KILLED, made=39 + SAVE_EVERY + 1), f"{SAVE_EVERY + 1} steps are lost"),
        (replace(GOOD, damaged=1), "1 damaged checkpoints; at most 0"),
        (replace(KILLED, resumed=42), "it went on at step 42, and 39 was saved"),
        (replace(KILLED, resumed=38), "it went on at step 38, and 39 was saved"),
    ],
)
def test_others_are_named(cycle: Cycle, words: str) -> None:
    found = missed(checks([GOOD, cycle], same=True))
    assert any(line.startswith(f"interruption 1 ({cycle.way})") and words in line for line in found)


@pytest.mark.parametrize("same", [None, False])
def test_weights_that_differ_or_were_not_seen(same: bool | None) -> None:
    (line,) = missed(checks([GOOD], same=same))
    assert line.startswith("the weights at the end: they ")


def test_the_table_has_a_row_for_each_way() -> None:
    assert make_table([GOOD, KILLED, GOOD]).row_count == 2
