"""Jobs that a signal ends: all ranks save at one step, and go on there with the same weights."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ddl.checkpoint import EXIT_PREEMPTED

from conftest import BIN, PROGRAMS, Result, environment

DDLRUN = [str(BIN / "ddlrun"), "-np", "2", "-timeout", "240"]
Train = Callable[..., Result]


def needs(*modules: str) -> pytest.MarkDecorator:
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}")


@pytest.fixture
def train(tmp_path: Path) -> Train:
    """Runs train.py on two ranks of the real ddlrun, and checks how it ends."""

    def run(
        *words: object,
        folder: Path = tmp_path / "saved",
        engine: str = "numpy",
        code: int = 0,
        **variables: object,
    ) -> Result:
        done = subprocess.run(
            [*DDLRUN, sys.executable, PROGRAMS / "train.py", folder, engine, *map(str, words)],
            env=environment(DDL_TIMEOUT=30, **variables),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The weights of the training without a framework, when nothing happens to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    command = [*DDLRUN, sys.executable, str(PROGRAMS / "train.py"), str(folder), "numpy"]
    return weights(
        subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
    )


def made(result: Result) -> set[str]:
    """The first and last steps that ranks made, once if they are the same."""
    return set(re.findall(r"rank \d made steps (.*)", result.stdout))


def weights(result: Result) -> str:
    """The digest of the weights, the same on both ranks."""
    found = re.findall(r"rank \d has weights (\w+)", result.stdout)
    assert len(found) == 2, result.stdout + result.stderr
    assert len(set(found)) == 1, found
    return found[0]


def steps(folder: Path) -> list[int]:
    return sorted(int(path.name.partition("-")[2]) for path in folder.glob("step-*"))


@pytest.mark.parametrize(
    ("signals", "every", "last", "average"),
    [
        (["1:4:SIGUSR1"], 1, 4, False),
        (["1:4:SIGUSR1"], 8, 4, True),  # the question goes along with the loss in each step
        (["0:4:SIGTERM"], 1, 4, False),
        (["0:4:SIGUSR1", "1:4:SIGUSR1"], 1, 4, False),
        (["0:1:SIGUSR1", "1:6:SIGUSR1"], 8, 7, False),
        (["1:6:SIGUSR1", "1:6:SIGTERM"], 4, 7, False),
    ],
)
def test_all_ranks_save_at_one_step(
    train: Train,
    tmp_path: Path,
    undisturbed: str,
    signals: list[str],
    every: int,
    last: int,
    average: bool,
) -> None:
    words = ("--signal", *signals, "--every", every, *(["--average"] if average else []))
    done = train(*words, code=EXIT_PREEMPTED)
    assert made(done) == {f"0 to {last}"}
    assert steps(tmp_path / "saved") == [last + 1]
    assert f"saved after step {last + 1} in {tmp_path}/saved; ending with exit" in done.stderr
    again = train()
    assert made(again) == {f"{last + 1} to 11"}
    assert weights(again) == undisturbed


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param("torch", marks=[needs("torch", "ddl_torch"), pytest.mark.slow]),
        pytest.param("batches", marks=needs("torch", "ddl_torch")),
        pytest.param("zero", marks=needs("torch", "ddl_torch")),
        pytest.param("fsdp", marks=needs("torch", "ddl_torch")),
        pytest.param("fsdp1", marks=needs("torch", "ddl_torch")),
        pytest.param("horovod", marks=needs("torch", "horovod")),
        pytest.param("keras", marks=needs("keras", "ddl_tensorflow")),
    ],
)
def test_weights_are_those_of_an_undisturbed_run(train: Train, tmp_path: Path, engine: str) -> None:
    """With dropout, an optimizer's state, and two stops: within an epoch, and after one."""
    last = ["--steps", "10"]
    for first, stop in ((0, 2), (3, 4)):
        done = train(*last, "--signal", f"1:{stop}:SIGUSR1", engine=engine, code=EXIT_PREEMPTED)
        assert made(done) == {f"{first} to {stop}"}
    again = train(*last, engine=engine)
    assert made(again) == {"5 to 9"}
    undisturbed = train(*last, engine=engine, folder=tmp_path / "undisturbed")
    assert weights(again) == weights(undisturbed)


def test_steps_are_saved_without_a_signal_too(train: Train, tmp_path: Path) -> None:
    done = train("--save-every", "5", "--die", "1:11", code=128 + 9)
    assert "has weights" not in done.stdout
    assert steps(tmp_path / "saved") == [5, 10]
    assert made(train()) == {"10 to 11"}
    assert steps(tmp_path / "saved") == [10, 12]
    assert made(train()) == {"-1 to -1"}  # nothing is left to do


def shorten(folder: Path) -> str:
    file = folder / "state.npz"
    os.truncate(file, file.stat().st_size - 1)
    return r"state.npz has \d+ bytes, not \d+"


def change(folder: Path) -> str:
    data = bytearray((folder / "rank-1.npz").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "rank-1.npz").write_bytes(data)
    return r"rank-1.npz has not the digest that the manifest says"


def lose(folder: Path) -> str:
    (folder / "rank-1.npz").unlink()
    return r"rank-1.npz: No such file or directory"


def lose_manifest(folder: Path) -> str:
    (folder / "manifest.json").unlink()
    return r"manifest.json: No such file or directory"


def cut_manifest(folder: Path) -> str:
    os.truncate(folder / "manifest.json", 100)
    return r"manifest.json is damaged"


def change_manifest(folder: Path) -> str:
    file = folder / "manifest.json"
    sealed = json.loads(file.read_text())
    sealed["manifest"]["step"] = 3
    file.write_text(json.dumps(sealed))
    return r"manifest.json is damaged"


def replace_by_a_link(folder: Path) -> str:
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to("elsewhere")
    return r"it cannot be opened as a folder"


def give_away(folder: Path) -> str:
    os.chown(folder, 65534, 65534)
    return r"it belongs to another user"


@pytest.mark.parametrize(
    "damage",
    [
        *(shorten, change, lose, lose_manifest, cut_manifest, change_manifest),
        replace_by_a_link,
        pytest.param(
            give_away, marks=pytest.mark.skipif(os.geteuid() != 0, reason="needs root: chown")
        ),
    ],
)
def test_a_damaged_checkpoint_is_passed_over(
    train: Train, tmp_path: Path, undisturbed: str, damage: Callable[[Path], str]
) -> None:
    saved = tmp_path / "saved"
    train("--save-every", "5", "--keep", "3")
    assert steps(saved) == [5, 10, 12]
    words = damage(saved / "step-000000000012")
    again = train("--keep", "3")
    said = rf"ddl\.checkpoint: passed over {saved}/step-000000000012: {words}"
    assert re.search(said, again.stderr), again.stderr
    assert f"goes on after step 10, from {saved}/step-000000000010" in again.stderr
    assert (made(again), weights(again)) == ({"10 to 11"}, undisturbed)
    assert "passed over" not in train().stderr  # a good one took the damaged one's place
    assert steps(saved) == [5, 10, 12]


def test_the_last_good_checkpoint_stays(train: Train, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    train("--save-every", "5", "--keep", "3")
    shorten(saved / "step-000000000010")
    shorten(saved / "step-000000000012")
    train("--keep", "1", "--signal", "0:6:SIGUSR1", code=EXIT_PREEMPTED)
    assert steps(saved) == [7, 10, 12]  # 5 went when 7 was there; the damaged ones stay
    assert made(train("--keep", "1")) == {"7 to 11"}


def test_training_begins_anew_where_nothing_is_complete(train: Train, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    (saved / "step-000000000009").mkdir(parents=True)
    (saved / ".step-10.0123456789abcdef").mkdir()
    (saved / ".step-10.0123456789abcdef" / "state.npz").write_bytes(b"half")
    done = train()
    assert f"passed over {saved}/step-000000000009: manifest.json: No such" in done.stderr
    assert f"no complete checkpoint is in {saved}; training begins at step 0" in done.stderr
    assert made(done) == {"0 to 11"}
    assert not list(saved.glob(".step-*"))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs root: mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize(
    ("engine", "width", "reason"),
    [
        ("numpy", 150_000, r"/state\.npz: No space left on device"),
        pytest.param(
            *("torch", 4000, r"/state\.pt: No space left on device"),
            marks=needs("torch", "ddl_torch"),
        ),
        pytest.param(
            *("fsdp", 4000, r": it cannot be written \(.*\); 0 MiB are free there"),
            marks=needs("torch", "ddl_torch"),
        ),
    ],
)
def test_a_full_disk_is_told_and_costs_no_checkpoint(
    train: Train, small: Path, engine: str, width: int, reason: str
) -> None:
    """The first checkpoint fits, and the second does not beside it."""
    saved = small / "saved"
    words = ("--save-every", "5", "--width", width)
    done = train(*words, engine=engine, folder=saved, code=1)
    said = rf"error: (rank \d: )?{saved}/\.step-10\.\w+{reason}"
    assert re.search(said, done.stderr), done.stderr
    assert made(done) == {"0 to 9"}
    assert "Traceback" not in done.stderr
    assert steps(saved) == [5]
    assert not list(saved.glob(".step-*"))
    stop = ("--signal", "0:7:SIGUSR1", "--width", width, "--keep", "1")
    shutil.rmtree(saved / "step-000000000005")
    assert made(train(*stop, engine=engine, folder=saved, code=EXIT_PREEMPTED)) == {"0 to 7"}


def test_a_model_of_another_shape_is_refused(train: Train, tmp_path: Path) -> None:
    train("--steps", "3")
    done = train("--width", "9", code=1)
    assert "error: model: the checkpoint is of another Weights (its width is 8); make it" in (
        done.stderr
    )
    assert steps(tmp_path / "saved") == [3]


def test_a_loop_that_forgets_step_is_told(train: Train) -> None:
    done = train("--forget", code=1)
    assert "error: call `saver.step()` at the end of each step of the loop" in done.stderr


def test_a_folder_that_is_a_file_is_told_on_all_ranks(train: Train, tmp_path: Path) -> None:
    (tmp_path / "saved").write_text("")
    done = train(code=1)
    assert f"error: {tmp_path}/saved: there is a file of this name; give a folder" in done.stderr


def test_another_job_s_folder_is_waited_for(train: Train, tmp_path: Path) -> None:
    """A requeued job may begin before the last process of it has ended."""
    saved = tmp_path / "saved"
    saved.mkdir()
    holder = subprocess.Popen(["flock", str(saved / ".lock"), "sleep", "5"])
    time.sleep(0.5)
    began = time.monotonic()
    train("--steps", "2")
    assert time.monotonic() - began > 3
    holder.wait(20)


@pytest.mark.slow
def test_another_job_s_folder_is_refused(train: Train, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    saved.mkdir()
    holder = subprocess.Popen(["flock", str(saved / ".lock"), "sleep", "60"])
    time.sleep(0.5)
    done = train(code=1)
    assert f"error: {saved}: another job saves there; end it, or give this one" in done.stderr
    holder.terminate()
    holder.wait(20)


def test_nobody_else_may_read_or_write_it(tmp_path: Path) -> None:
    words = [*DDLRUN, sys.executable, str(PROGRAMS / "train.py"), "saved", "numpy"]
    command = ["sh", "-c", 'umask 0 && exec "$@"', "sh", *words]
    subprocess.run(command, env=environment(), cwd=tmp_path, check=True, capture_output=True)
    found = [tmp_path / "saved", *(tmp_path / "saved").rglob("*")]
    assert len(found) == 7
    assert {path.stat().st_mode & 0o777 for path in found if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in found if path.is_file()} == {0o600}


def test_a_second_signal_and_a_stuck_rank_still_end_the_job(tmp_path: Path) -> None:
    """The batch system's patience has an end, whatever a rank is doing."""
    job = subprocess.Popen(
        [*DDLRUN, sys.executable, PROGRAMS / "train.py", tmp_path / "saved", "numpy", "--pause=60"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "saved" / ".lock").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    began = time.monotonic()
    job.terminate()
    _, errors = job.communicate(timeout=60)
    assert job.returncode == 143, errors
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_any_kind_is_told_to_the_other_ranks(tmp_path: Path, rank: int) -> None:
    """They do not wait for the one that has it, and go on together."""
    done = subprocess.run(
        [*DDLRUN, sys.executable, PROGRAMS / "raises.py", tmp_path / "saved", str(rank)],
        env=environment(DDL_TIMEOUT=30),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = [
        "rank 0: ValueError it is in no mood",
        "rank 1: CheckpointError ValueError: it is in no mood",
        f"rank {rank}: KeyboardInterrupt",
        f"rank {1 - rank}: CheckpointError KeyboardInterrupt",
    ]
    assert sorted(re.findall(r"rank \d: .*", done.stdout)) == sorted(told)
    assert steps(tmp_path / "saved") == [0]


@pytest.mark.parametrize(
    "backend",
    [
        pytest.param("gloo", marks=needs("torch")),
        pytest.param("ddl", marks=needs("torch", "ddl_torch")),
    ],
)
def test_torchs_ranks_wait_for_one_that_saves(tmp_path: Path, backend: str) -> None:
    """For longer than their group's timeout, which it has again afterwards."""
    done = subprocess.run(
        [*DDLRUN, sys.executable, PROGRAMS / "patient.py", tmp_path / "saved", backend],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert re.findall(r"rank (\d) has saved", done.stdout) in (["0", "1"], ["1", "0"]), done.stderr
    assert "rank 1 was not met" in done.stdout, done.stdout + done.stderr
    assert steps(tmp_path / "saved") == [1]
