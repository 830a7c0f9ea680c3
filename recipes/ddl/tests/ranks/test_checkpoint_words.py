"""What `ddl.checkpoint` refuses, and what it says then; in one process."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ddl.checkpoint import Checkpointer, CheckpointError
from ddl.checkpoint.codec import read_state, write_state
from ddl.checkpoint.slurm import requeue, why_not

HAS_TORCH = importlib.util.find_spec("torch") is not None


class Values:
    def __init__(self, **state: Any) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every: expected a whole number from 1, not 0"),
        ({"save_every": -1}, "save_every: expected a whole number from 1, not -1"),
        ({"keep": 1.5}, "keep: expected a whole number from 1, not 1.5"),
        ({"signals": [999]}, "signals: 999 is not a valid Signals; use such as signal.SIGUSR1"),
        ({"model": 3}, "model: a int has no state_dict and load_state_dict"),
    ],
)
def test_bad_arguments(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        Checkpointer(tmp_path, **{"values": Values(), **options})
    assert words in str(caught.value)


def test_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is nothing to save; give model"):
        Checkpointer(tmp_path)


def test_a_signal_that_no_program_may_handle(tmp_path: Path) -> None:
    saver = Checkpointer(tmp_path, signals=[signal.SIGUSR1, signal.SIGKILL], values=Values())
    before = signal.getsignal(signal.SIGUSR1)
    with pytest.raises(CheckpointError, match="signals: SIGKILL cannot be handled here"):
        saver.__enter__()
    assert signal.getsignal(signal.SIGUSR1) is before


def test_another_thread_is_told_to_use_the_main_one(tmp_path: Path) -> None:
    told: list[str] = []

    def enter() -> None:
        try:
            Checkpointer(tmp_path, values=Values()).__enter__()
        except CheckpointError as error:
            told.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert "begin in the main thread" in told[0]


def test_handlers_are_as_before_at_the_end(tmp_path: Path) -> None:
    before = [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)]
    with Checkpointer(tmp_path, values=Values()):
        assert signal.getsignal(signal.SIGUSR1) != before[0]
    assert [signal.getsignal(number) for number in (signal.SIGUSR1, signal.SIGTERM)] == before


def test_step_outside_of_with(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="use it as `with Checkpointer"):
        Checkpointer(tmp_path, values=Values()).step()


def test_ranks_that_cannot_talk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("DDL_OPTIONS", raising=False)
    with pytest.raises(CheckpointError, match=r"the job has 2 ranks .* first call init_process"):
        Checkpointer(tmp_path, values=Values()).__enter__()


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"f": print},
            "values.f is a builtin_function_or_method, which a checkpoint does not hold",
        ),
        ({"a": {"b": [1, {2}]}}, "values.a.b[1] is a set"),
        ({"a": {1.5: 0}}, "values.a has the key 1.5; use strings"),
        ({"a": np.array(["x"], object)}, "values.a is a ndarray"),
    ],
)
def test_a_state_that_cannot_be_read_again_is_not_written(
    tmp_path: Path, state: dict[str, Any], words: str
) -> None:
    with pytest.raises(CheckpointError) as caught:
        with Checkpointer(tmp_path, values=Values(**state)):
            pass
    assert words in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_other_objects_than_were_saved(tmp_path: Path) -> None:
    with Checkpointer(tmp_path, values=Values()):
        pass
    with pytest.raises(CheckpointError, match="it holds values, and the program saves other"):
        Checkpointer(tmp_path, other=Values()).__enter__()


@pytest.mark.parametrize("end", [".npz", *([".pt"] if HAS_TORCH else [])])
def test_states_come_back_as_they_were(tmp_path: Path, end: str) -> None:
    state = {
        "plain": [None, True, 3, 2**70, 0.1, float("inf"), "ü"],
        "pair": (1, (2.5, [3])),
        "ordered": OrderedDict(a=1),
        "array": np.arange(6, dtype=np.float16).reshape(2, 3),
        "scalar": np.array(3.5),
    }
    write_state(tmp_path / f"x{end}", state)
    found = read_state(f"x{end}", (tmp_path / f"x{end}").read_bytes())
    assert (found["plain"], found["pair"]) == (state["plain"], state["pair"])
    assert found["ordered"] == {"a": 1}
    for name in ("array", "scalar"):
        assert found[name].dtype == state[name].dtype  # type: ignore[attr-defined]
        assert np.array_equal(found[name], state[name])
        assert found[name].shape == state[name].shape  # type: ignore[attr-defined]


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_loaders_whose_order_is_lost_are_refused() -> None:
    from ddl.checkpoint.batches import check_loader
    from torch.utils.data import DataLoader

    data: Any = list(range(8))
    check_loader(DataLoader(data, 2))
    with pytest.raises(CheckpointError, match="loader: its shuffle cannot be repeated"):
        check_loader(DataLoader(data, 2, shuffle=True))
    with pytest.raises(CheckpointError, match="loader: it has no batch sampler"):
        check_loader(DataLoader(data, batch_size=None))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({}, ""),
        ({"BatchFlag": "0"}, "it is no batch job"),
        ({"Requeue": "0"}, "it was submitted with --no-requeue"),
        ({"PreemptTime": "2026-11-26T12:00:00"}, ""),  # else it fails, having ended by itself
        ({"JobState": "COMPLETING"}, "Slurm is ending it already (its state is COMPLETING)"),
    ],
)
def test_which_jobs_are_requeued(facts: dict[str, str], reason: str) -> None:
    running = {"JobState": "RUNNING", "Requeue": "1", "BatchFlag": "1", "PreemptTime": "None"}
    found = why_not({**running, **facts})
    assert found.startswith(reason) if reason else not found


def test_a_job_of_slurm_without_slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert requeue({}) == ""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = requeue({"SLURM_JOB_ID": "7"})
    assert said == "job 7 was not requeued: scontrol show job: scontrol is not on PATH"


def test_the_end_of_the_job_may_be_quicker_than_the_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Slurm kills all of the job, and so the command that asked for its next start."""
    program = tmp_path / "scontrol"
    program.write_text("#!/bin/sh\n[ $1 = requeue ] && kill $$\necho JobState=RUNNING\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert requeue({"SLURM_JOB_ID": "7"}) == "job 7 was requeued"


def test_importing_it_imports_no_framework() -> None:
    code = "import ddl.checkpoint, sys; print({'torch', 'keras', 'horovod'} & set(sys.modules))"
    env = {name: value for name, value in os.environ.items() if name != "DDL_OPTIONS"}
    said = subprocess.check_output([sys.executable, "-c", code], text=True, env=env)
    assert said == "set()\n"


def test_a_forked_child_dies_of_sigterm_and_outlives_sigusr1(tmp_path: Path) -> None:
    """A data loader has its parent's handlers, and the batch system's signal goes to all."""
    with Checkpointer(tmp_path, values=Values()) as saver:
        child = os.fork()
        if not child:
            os.kill(os.getpid(), signal.SIGUSR1)
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        saver.step()


def test_a_forked_child_does_not_keep_the_folder(tmp_path: Path) -> None:
    """As a data loader that outlives the training."""
    with Checkpointer(tmp_path, values=Values()):
        child = os.fork()
        if not child:
            signal.pause()
            os._exit(0)
    try:
        began = time.monotonic()
        with Checkpointer(tmp_path, values=Values()):
            assert time.monotonic() - began < 10
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
