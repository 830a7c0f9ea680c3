"""What `ddl.checkpoint` refuses, and what it says then; in one process."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
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


@pytest.mark.parametrize("call", [Checkpointer.step, Checkpointer.save])
def test_calls_outside_of_with(tmp_path: Path, call: Callable[[Checkpointer], None]) -> None:
    with pytest.raises(CheckpointError, match="use it as `with Checkpointer"):
        call(Checkpointer(tmp_path, values=Values()))
    assert not list(tmp_path.iterdir())


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
        ({"a": np.array(["x"], object)}, "values.a is an array of object"),
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


ENDS = [".npz", *([".pt"] if HAS_TORCH else [])]


@pytest.mark.parametrize("end", ENDS)
def test_states_come_back_as_they_were(tmp_path: Path, end: str) -> None:
    arrays = {
        "array": np.arange(6, dtype=np.float16).reshape(2, 3),
        "scalar": np.array(3.5),
        "raw": np.arange(12, dtype=np.uint16).reshape(3, 4).view("V2"),  # as bfloat16 is
        "raw scalar": np.array(7, np.int32).view("V4"),
        "no raw": np.zeros((0, 3), "V2"),
        "kept": np.broadcast_to(np.arange(3.0), (2, 3)),  # nobody may write it
        "turned": np.arange(3, dtype=">i4"),
    }
    state = {
        "plain": [None, True, 3, 2**70, 0.1, float("inf"), "ü"],
        "pair": (1, (2.5, [3])),
        "ordered": OrderedDict(a=1),
        **arrays,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        write_state(tmp_path / f"x{end}", state)
    found = read_state(f"x{end}", (tmp_path / f"x{end}").read_bytes())
    assert (found["plain"], found["pair"]) == (state["plain"], state["pair"])
    assert found["ordered"] == {"a": 1}
    for name, array in arrays.items():
        assert found[name].dtype.newbyteorder("=") == array.dtype.newbyteorder("="), name
        assert found[name].shape == array.shape
        assert found[name].tolist() == array.tolist()


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["f4,i4", "O,i4", "g"])
def test_arrays_that_would_not_come_back_are_named(tmp_path: Path, end: str, kind: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"a\.b is an array of .*, which a checkpoint does not"
    ):
        write_state(tmp_path / f"x{end}", {"a": {"b": np.zeros(3, kind)}})


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
@pytest.mark.parametrize(
    "kind", ["shuffle", "subset", "weighted", "batches", "own", "not in order"]
)
def test_loaders_whose_order_is_lost_are_refused(kind: str) -> None:
    import torch
    from ddl.checkpoint.batches import check_loader
    from torch.utils import data

    class Own:
        """Batches of one's own, with NumPy's random numbers."""

        def __iter__(self) -> Iterator[list[int]]:
            return iter(np.random.permutation(100).reshape(-1, 2).tolist())

    samples: Any = list(range(100))
    own: Any = Own()
    loaders: dict[str, Callable[[], Any]] = {
        "shuffle": lambda: data.DataLoader(samples, 2, shuffle=True),
        "subset": lambda: data.DataLoader(samples, 2, sampler=data.SubsetRandomSampler(samples)),
        "weighted": lambda: data.DataLoader(
            samples, 2, sampler=data.WeightedRandomSampler([1.0] * 100, 100)
        ),
        "batches": lambda: data.DataLoader(
            samples, batch_sampler=data.BatchSampler(data.RandomSampler(samples), 2, False)
        ),
        "own": lambda: data.DataLoader(samples, batch_sampler=own),
        "not in order": lambda: data.DataLoader(samples, 2, num_workers=2, in_order=False),
    }
    words = "its batches come in any order" if kind == "not in order" else "its shuffle cannot be"
    before = torch.get_rng_state(), np.random.get_state()[1].tolist()
    with pytest.raises(CheckpointError, match=f"loader: {words}"):
        check_loader(loaders[kind]())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tolist() == before[1]


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_loaders_without_batches_are_refused_and_those_in_order_are_not() -> None:
    from ddl.checkpoint.batches import check_loader
    from torch.utils.data import DataLoader

    data: Any = list(range(8))
    check_loader(DataLoader(data, 2))
    with pytest.raises(CheckpointError, match="loader: it has no batch sampler"):
        check_loader(DataLoader(data, batch_size=None))


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
def test_a_sampler_in_a_batch_sampler_is_told_the_epoch(tmp_path: Path) -> None:
    from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

    data: Any = list(range(20))
    sampler: Any = DistributedSampler(data, 1, 0)
    loader = DataLoader(data, batch_sampler=BatchSampler(sampler, 10, False))
    with Checkpointer(tmp_path, values=Values()) as saver:
        found = []
        for batch in saver.batches(loader, 3):
            found.append(tuple(batch.tolist()))
            saver.step()
    assert len(set(found)) == 6


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch")
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("samples", [1, 2, 5, 24, 25])
def test_the_rest_of_an_order_is_shared_out(samples: int, drop_last: bool) -> None:
    from ddl.checkpoint.batches import Share
    from torch.utils.data import DistributedSampler

    data: Any = list(range(samples))
    order = list(DistributedSampler(data, 1, 0))
    for done in range(samples + 3):
        for size in range(1, 5):
            whole = [
                DistributedSampler(data, size, rank, drop_last=drop_last) for rank in range(size)
            ]
            shares = [list(Share(one, done)) for one in whole]
            assert len({len(share) for share in shares}) == 1  # else a rank would wait
            assert [len(Share(one, done)) for one in whole] == [len(share) for share in shares]
            found = Counter(sample for share in shares for sample in share)
            rest = order[done : whole[0].total_size if drop_last else samples]
            if drop_last:
                assert found.keys() <= set(rest)
                assert len(rest) - found.total() in range(size)
            else:
                assert found.keys() >= set(rest)
                assert found.total() - len(rest) in range(size)


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
