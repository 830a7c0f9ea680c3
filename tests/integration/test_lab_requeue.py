"""Jobs of a real Slurm that are preempted, requeued, and end as if nothing had been.

The long loop of random moments is tests/bench/bench_requeue.py; here is each way once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import bring_up
from bench.lab.requeue import SAVE_EVERY, WAYS, Training
from bench.lab.slurm import Slurm, slurm_in, why_not
from support.lab import needs_lab

pytestmark = [
    pytest.mark.built,
    needs_lab,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with bring_up(parse_layout("racks-2x2")) as lab, slurm_in(lab) as found:
        yield found


def until(training: Training, starts: int, steps: int) -> None:
    """Wait until a training has begun so often, and made so many steps."""

    def is_there() -> bool:
        return len(training.starts()) >= starts and training.made() >= steps

    assert wait_until(is_there, 60, 0.1), (training.folder / "out").read_text()


def test_an_interrupted_job_ends_with_the_weights_of_an_undisturbed_one(slurm: Slurm) -> None:
    training = Training(slurm, built(), "training", 0.02)
    for count, way in enumerate(WAYS):
        until(training, count + 1, training.made() + 7)
        cycle = training.interrupt(way, 0.2)
        assert cycle.trained
        assert cycle.resumed == cycle.saved, cycle
        assert cycle.lost <= (0 if way == "USR1" else SAVE_EVERY), cycle
        assert cycle.damaged == 0, cycle
        assert cycle.requeued == (way in ("USR1", "requeue", "node down")), cycle
    until(training, len(WAYS) + 1, training.made() + 7)
    total = training.finish(20)
    undisturbed = Training(slurm, built(), "undisturbed", 0.0, total)
    assert slurm.wait(undisturbed.number, 60)["JobState"] == "COMPLETED"
    assert len(training.weights()) == 1
    assert training.weights() == undisturbed.weights()


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_time_limit_s_warning_is_enough(slurm: Slurm, hosts: int) -> None:
    """The scheduler itself sends the signal, as `--signal=B:USR1@SECONDS` says."""
    options = (f"-N{hosts}", "--time=2", "--signal=B:USR1@115")
    training = Training(slurm, built(), f"limited-{hosts}", 0.05, options=options)
    until(training, 1, 1)
    assert wait_until(lambda: training.state() != "RUNNING", 100, 0.2)
    said = (training.folder / "out").read_text()
    assert f"ddl.checkpoint: job {training.number} was requeued" in said
    assert training.complete()[0] == training.made()
    slurm.run("scancel", str(training.number))


def test_a_job_that_may_not_be_requeued_is_not(slurm: Slurm) -> None:
    training = Training(slurm, built(), "once", 0.02, options=("-N2", "--no-requeue"))
    until(training, 1, 5)
    slurm.run("scancel", "--batch", "--signal=USR1", str(training.number))
    facts = slurm.wait(training.number, 60)
    assert (facts["JobState"], facts["ExitCode"]) == ("FAILED", "75:0")
    said = (training.folder / "out").read_text()
    assert f"job {training.number} was not requeued: it was submitted with --no-requeue" in said
    assert training.complete()[0] == training.made()


def test_a_cancelled_job_stays_cancelled(slurm: Slurm) -> None:
    training = Training(slurm, built(), "cancelled", 0.02)
    until(training, 1, 5)
    slurm.run("scancel", str(training.number))
    assert slurm.wait(training.number, 60)["JobState"] == "CANCELLED"
    time.sleep(1)
    assert training.state() == "CANCELLED"


def test_a_job_that_slurm_preempts_is_requeued_once(slurm: Slurm) -> None:
    """A job of higher priority takes its hosts: SIGTERM, a time of grace, and then the end.

    Slurm requeues no job that has ended by itself in the time of grace.
    """
    training = Training(slurm, built(), "preempted", 0.02, options=("-N4", "--exclusive"))
    until(training, 1, 5)
    urgent = slurm.submit("#!/bin/bash\nsleep 1\n", "-N4", "--exclusive", "-p", "urgent")
    end = time.monotonic() + 60
    while training.state() != "PENDING" or training.programs():
        said = (training.folder / "out").read_text()
        assert time.monotonic() < end, training.state() + said
        time.sleep(0.2)
    said = (training.folder / "out").read_text()
    assert said.count(f"ddl.checkpoint: job {training.number} was requeued") == 1, said
    assert training.complete()[0] == training.made()
    assert slurm.job(training.number)["Restarts"] == "1"
    assert slurm.wait(urgent, 60)["JobState"] == "COMPLETED"
    slurm.run("scancel", str(training.number))
