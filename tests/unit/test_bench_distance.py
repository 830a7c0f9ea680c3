"""What libraries did is compared in one state of the processors."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.distance import Batch, Distances, Watch

NEAR, BETWEEN, FAR = 60e-9, 120e-9, 330e-9


def test_batches_are_split_by_the_state_they_ran_in() -> None:
    states = [NEAR] * 5 + [FAR] * 5 + [BETWEEN] * 5
    distances = Distances([float(t) for t in range(len(states))], states)
    batches = [
        Batch(0.5, 3.5, 1e-3),
        Batch(4.5, 9.5, 5e-3),
        Batch(10.5, 13.5, 3e-3),  # in neither
        Batch(0.5, 7.5, 2e-3),  # partly in each
    ]
    assert distances.split(batches) == ([1e-3], [5e-3])


def test_a_batch_between_samples_has_the_next_one() -> None:
    distances = Distances([0.0, 1.0, 2.0], [NEAR, FAR, NEAR])
    assert distances.during(Batch(0.2, 0.8, 1e-3)) == [FAR]
    assert distances.during(Batch(2.2, 2.8, 1e-3)) == [NEAR]  # there is none yet: the last


def test_a_single_outlier_is_no_state() -> None:
    assert Distances(range(1000), [1e-9] * 5 + [NEAR] * 995).least == NEAR


def test_what_was_written_so_far(tmp_path: Path) -> None:
    log = tmp_path / "distances"
    log.write_text("1.000000 0.000000060\n1.004000 0.000000070\n1.0080")
    assert Watch(log).so_far() == Distances([1.0, 1.004], [60e-9, 70e-9])


def test_nothing_was_written(tmp_path: Path) -> None:
    log = tmp_path / "distances"
    log.touch()
    with pytest.raises(RuntimeError, match="was not measured; are there two"):
        Watch(log).so_far()
