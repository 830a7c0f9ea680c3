"""Interrupted after every batch and resumed, each sample is trained on as often as without."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ddl.checkpoint import EXIT_PREEMPTED

from conftest import BIN, PROGRAMS, Result, environment


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


def train(folder: Path, kind: str, ranks: int, stops: int = 0) -> Result:
    """torch's training on some ranks, ended after some stops, or at its end."""
    return run(ranks, "samples.py", folder, kind, stops)


def run(ranks: int, program: str, *words: object) -> Result:
    return subprocess.run(
        [
            *(BIN / "ddlrun", "-np", str(ranks), "-timeout", "600"),
            *(sys.executable, PROGRAMS / program, *map(str, words)),
        ],
        env=environment(DDL_TIMEOUT=30),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def counts(result: Result) -> np.ndarray:
    """By epochs, how often each sample was trained on."""
    assert result.returncode == 0, result.stdout + result.stderr
    (line,) = (line for line in result.stdout.splitlines() if "counts " in line)
    return np.array(json.loads(line.partition("counts ")[2]))


@needs("torch")
@pytest.mark.parametrize("kind", ["dealt", "batches of dealt"])
def test_each_sample_is_trained_on_whatever_the_ranks(tmp_path: Path, kind: str) -> None:
    """As a DistributedSampler does, a rest that is not divisible repeats a few samples."""
    extra, before = 0, 0
    sizes = [random.randint(1, 3) for _ in range(4)]
    for size in sizes:
        result = train(tmp_path / "saved", kind, size, random.randint(1, 3))
        assert result.returncode == EXIT_PREEMPTED, result.stdout + result.stderr
        extra += (size - 1) * (size != before)
        before = size
    found = counts(train(tmp_path / "saved", kind, 2))
    extra += before != 2
    assert found.min() == 1, (sizes, found.tolist())
    assert (found - 1).sum() <= extra, (sizes, found.tolist())


@needs("torch")
@pytest.mark.parametrize("kind", ["own", "in order"])
def test_each_sample_is_trained_on_once_or_refused(tmp_path: Path, kind: str) -> None:
    """Where the order is not a DistributedSampler's, other ranks cannot go on in an epoch."""
    ended = train(tmp_path / "saved", kind, 2, 3)
    assert ended.returncode == EXIT_PREEMPTED, ended.stdout + ended.stderr
    refused = train(tmp_path / "saved", kind, 3)
    words = "error: loader: it was interrupted in the middle of an epoch on 2 ranks with batches"
    assert words in refused.stderr
    assert refused.returncode == 1
    assert (counts(train(tmp_path / "saved", kind, 2)).sum(0) == 2).all()


FITS = ["arrays", "executions", "metrics", "repeat", "passes", "unknown"]


@needs("keras", "tensorflow", "ddl_tensorflow")
@pytest.mark.parametrize("ranks", [1, 2])
def test_fit_trains_on_each_sample(tmp_path: Path, ranks: int) -> None:
    """And knows the metrics of the epochs in which it was interrupted."""
    done = run(ranks, "fits.py", tmp_path / "saved", 10**6, *FITS)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in re.findall(r"result (.*)", done.stdout)]
    assert [it["kind"] for it in found] == FITS
    for it in found:
        assert it["counts"] == [2] * 12, it
        assert it["last"]["loss"] == pytest.approx(0.81), it
        assert it["last"].get("mae", 0.9) == pytest.approx(0.9), it
    assert done.stderr.count("goes on after step") > 30


@needs("keras", "tensorflow", "ddl_tensorflow")
def test_fit_goes_on_in_an_epoch_only_as_it_was(tmp_path: Path) -> None:
    ended = run(2, "fits.py", tmp_path / "saved", 2, "arrays")
    assert ended.returncode == EXIT_PREEMPTED, ended.stdout + ended.stderr
    refused = run(1, "fits.py", tmp_path / "saved", 10**6, "arrays")
    words = "it was interrupted in the middle of its data with 2 ranks, and has 1 now"
    assert f"error: fit: {words}" in refused.stderr
    assert refused.returncode == 1


@needs("keras", "tensorflow", "ddl_tensorflow")
def test_a_fit_that_ends_by_an_exception_leaves_nothing(tmp_path: Path) -> None:
    done = run(1, "fits.py", tmp_path / "saved", 0, "exception")
    assert done.returncode == 0, done.stdout + done.stderr
    said = re.findall("interrupted|stopped|trained", done.stdout)
    assert said == [*["interrupted"] * 3, "stopped", "interrupted", "trained"]
    assert "another job saves there" not in done.stderr
    assert "ddl.checkpoint: fit shuffles the data: in an epoch that is" in done.stderr


@needs("keras", "tensorflow", "ddl_tensorflow")
def test_a_fit_that_cannot_go_on_is_told(tmp_path: Path) -> None:
    done = run(1, "fits.py", tmp_path / "saved", 0, "refused")
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall("told (.*)", done.stdout) == [
        *["fit: it has fewer batches than were done; give it the data as before"] * 2,
        "KerasCheckpoint: it is a callback for `fit` of Keras on TensorFlow; elsewhere, use "
        "ddl.checkpoint.Checkpointer",
        "model: it is not built yet; give it a keras.Input",
    ]
