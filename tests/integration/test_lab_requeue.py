"""Jobs of a real Slurm that are preempted, requeued, and end as if nothing had been.

The long loop of random moments is tests/bench/bench_requeue.py; here is each way once.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.environment import built
from bench.lab.layout import parse_layout
from bench.lab.namespaces import wait_until
from bench.lab.network import bring_up
from bench.lab.requeue import SAVE_EVERY, WAYS, WORKER, Training
from bench.lab.slurm import Slurm, slurm_in
from integration.lab import needs_slurm

pytestmark = [pytest.mark.built, needs_slurm]

TASK = """
import os, sys, time
from pathlib import Path
from ddl.checkpoint.slurm import requeue
restarts, folder = os.environ.get("SLURM_RESTART_COUNT", "0"), Path(sys.argv[1])
has_array_s = os.environ["SLURM_JOB_ID"] == os.environ["SLURM_ARRAY_JOB_ID"]
asks = has_array_s == (sys.argv[2] == "array's")
print("start", restarts, flush=True)
if asks and restarts == "0":
    while sys.argv[3] == "completed" and not (folder / "done").exists():
        time.sleep(0.2)
    time.sleep(2)  # Slurm has seen it, too
    print(requeue(), flush=True)
    (folder / "asked").touch()
    time.sleep(60)
while sys.argv[3] == "running" and not (folder / "asked").exists():
    time.sleep(0.2)
time.sleep(3 if sys.argv[3] == "running" else 0)
(folder / "done").touch()
print("end", restarts, flush=True)
"""


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


def test_the_time_limit_s_warning_is_enough(slurm: Slurm) -> None:
    """The scheduler itself sends the signal, as `--signal=B:USR1@SECONDS` says.

    It looks at its jobs twice a minute, and sends the signal up to half a minute early: here that
    is half a minute after the start, when the slowest rank trains.
    """
    trainings = {
        hosts: Training(
            slurm,
            built(),
            f"limited-{hosts}",
            0.05,
            options=(f"-N{hosts}", "--time=3", "--signal=B:USR1@115"),
        )
        for hosts in (1, 2)
    }
    for training in trainings.values():
        until(training, 1, 1)
    for hosts, training in trainings.items():
        assert wait_until(training.is_gone, 120, 0.2), training.state()
        said = (training.folder / "out").read_text()
        assert f"ddl.checkpoint: job {training.number} was requeued" in said, hosts
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
    is_over = wait_until(lambda: training.is_gone() and training.state() == "PENDING", 120, 0.2)
    said = (training.folder / "out").read_text()
    assert is_over, training.state() + said
    assert said.count(f"ddl.checkpoint: job {training.number} was requeued") == 1, said
    assert training.complete()[0] == training.made()
    assert slurm.job(training.number)["Restarts"] == "1"
    assert slurm.wait(urgent, 60)["JobState"] == "COMPLETED"
    slurm.run("scancel", str(training.number))


@pytest.mark.parametrize("sibling", ["running", "completed"])
@pytest.mark.parametrize("whose", ["array's", "own"])
def test_a_task_of_an_array_is_requeued_alone(slurm: Slurm, whose: str, sibling: str) -> None:
    """One task has the array's number, which names all tasks for Slurm."""
    folder = slurm.folder / f"array-{whose[:3]}-{sibling}"
    folder.mkdir()
    (folder / "task.py").write_text(TASK)
    words = f'{folder}/task.py {folder} "{whose}" {sibling}'
    script = f"#!/bin/bash\nexec {built()}/bin/python {words}\n"
    options = ("--array=0-1", "-N1", "--requeue", "--open-mode=append", "-o", f"{folder}/%a.out")
    number = slurm.submit(script, *options)
    asking = 1 if whose == "array's" else 0  # Slurm gives it to the last task
    out = folder / f"{asking}.out"
    try:
        slurm.until(lambda: out.exists() and "requeued" in out.read_text(), 60, "the request")
        assert f"start 0\njob {number}_{asking} was requeued\n" in own_words(out)
        time.sleep(2)  # as Training's _hurry has it

        def has_ended() -> bool:  # the first words may come while Slurm still ends the task
            slurm.run("scontrol", "update", f"JobId={number}_{asking}", "StartTime=now")
            return "end 1" in out.read_text()

        slurm.until(has_ended, 120, "the task's second end")
        other = folder / f"{1 - asking}.out"
        slurm.until(lambda: "end" in other.read_text(), 60, "the other task's end")
    finally:
        slurm.run("scancel", str(number))
    assert own_words(other) == "start 0\nend 0\n"


def test_a_timeout_of_ddlrun_s_own_ends_the_job(slurm: Slurm) -> None:
    """It is the user's; the time limit of Slurm is not."""
    folder = slurm.folder / "timeout"
    folder.mkdir()
    (folder / "total").write_text(str(10**9))
    script = (
        f"#!/bin/bash\n#SBATCH --open-mode=append\nexport PATH={built()}/bin:$PATH\n"
        f"ddlrun -timeout 8 -grace 10 python {WORKER} {folder} 0.05; echo status $?\n"
        "scontrol show job --oneliner $SLURM_JOB_ID | grep -o Requeue=.\n"
    )
    number = slurm.submit(script, "-N2", "--requeue", "-o", str(folder / "out"))
    facts = slurm.wait(number, 60)
    said = (folder / "out").read_text()
    assert (facts["JobState"], facts["Restarts"]) == ("COMPLETED", "0"), said
    assert f"ddl.checkpoint: job {number} was not requeued: it was submitted with" in said
    assert said.endswith("status 124\nRequeue=1\n")  # what follows in the script may be


def own_words(out: Path) -> str:
    """A job's output without Slurm's own, which says when it ended the job."""
    lines = out.read_text().splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("slurmstepd"))
