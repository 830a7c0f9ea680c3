"""Ranks that are started again: each attempt meets anew, by a store that others have used."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "2"]

# A rank of this number ends by itself, in each attempt but the last and another one each time.
FAILS = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
dist.init_process_group("ddl", timeout=timedelta(seconds=60))
rank, attempt = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
tensor = torch.ones(1000)
dist.all_reduce(tensor)
if rank == attempt % 2 and attempt < int(sys.argv[1]):
    os._exit(7)
dist.all_reduce(tensor)
assert tensor.eq(4).all()
dist.destroy_process_group()
if rank == 0:
    print(f"came to the end at attempt {attempt}")
"""

# Lightning starts rank 1 itself. A rank of the attempt's number ends by itself, but in the last.
FITS = """
import os, sys
import lightning, torch
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
attempt, last = map(int, sys.argv[1:])

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        if index == 1 and self.global_rank == attempt % 2 and attempt < last:
            os._exit(7)
        return self.net(batch).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy=DDPStrategy(process_group_backend="ddl"),
    plugins=[LightningEnvironment()], max_steps=3, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, enable_model_summary=False)
trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(64, 4), 4))
if trainer.global_rank == 0:
    print("came to the end at attempt", attempt)
"""

# Ranks that meet by a store in a file, which earlier ranks have left.
MEETS = """
import os, sys
from datetime import timedelta
import torch, torch.distributed as dist
rank = int(sys.argv[2])
limit = timedelta(seconds=float(sys.argv[3]))
dist.init_process_group("ddl", init_method="file://" + sys.argv[1], rank=rank, world_size=2,
                        timeout=limit)
tensor = torch.ones(10)
dist.all_reduce(tensor)
assert tensor.eq(2).all()
os._exit(7 if len(sys.argv) > 4 else 0)
"""

# Rank 1 ends in MPI_Init, and torchrun thinks that all is well with it.
LEAVES = """
import os
from datetime import timedelta
import torch.distributed as dist
from ddl_torch import _pmi
answer = _pmi.Server._answer
def leaves(self, words):
    if words["cmd"] == os.environ["WHERE"]:
        os._exit(0)
    return answer(self, words)
if os.environ["RANK"] == "1":
    _pmi.Server._answer = leaves
dist.init_process_group("ddl", timeout=timedelta(seconds=4))
"""

Result = subprocess.CompletedProcess[str]


def run(command: list[str], timeout: float = 570, **variables: str) -> Result:
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=env | {"OMP_NUM_THREADS": "1"} | variables,
        check=False,
    )


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_torchrun_starts_the_ranks_again(times: int, tmp_path: Path) -> None:
    """The agent's store outlives an attempt: no rank may take a key of an earlier one."""
    program = tmp_path / "fails.py"
    program.write_text(FAILS)
    words = ["--max-restarts", str(times), str(program), str(times)]
    result = run([*TORCHRUN, *words], timeout=60 + 60 * times)
    assert result.returncode == 0, result.stderr[-4000:]
    assert result.stdout == f"came to the end at attempt {times}\n"


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_lightning_starts_its_ranks_again(times: int, tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    program = tmp_path / "fits.py"
    program.write_text(FITS)
    for attempt in range(times + 1):
        words = [sys.executable, str(program), str(attempt), str(times)]
        result = run(words, timeout=900, DDL_TIMEOUT="300")  # beside a build, minutes
        assert (result.returncode == 0) == (attempt == times), result.stderr[-4000:]
        told = f"came to the end at attempt {times}\n" if attempt == times else ""
        assert result.stdout == told
        assert "timed out" not in result.stderr, result.stderr[-4000:]


def test_a_file_that_earlier_ranks_have_left(tmp_path: Path) -> None:
    """Three jobs, one after the other, by one file; the first two end without leave."""
    program = tmp_path / "meets.py"
    program.write_text(MEETS)
    for last in ("fails", "fails", ""):
        words = [sys.executable, str(program), str(tmp_path / "store")]
        ends = ["60", *([last] if last else [])]
        first = subprocess.Popen([*words, "0", *ends])
        second = subprocess.Popen([*words, "1", *ends])
        codes = [process.wait(300) for process in (first, second)]
        assert codes == ([7, 7] if last else [0, 0])


def test_a_rank_that_does_not_come_again_is_named(tmp_path: Path) -> None:
    """What an earlier rank 1 has left in the store does not count as its arrival."""
    program = tmp_path / "meets.py"
    program.write_text(MEETS)
    words = [sys.executable, str(program), str(tmp_path / "store")]
    both = [subprocess.Popen([*words, rank, "60"]) for rank in "01"]
    assert [process.wait(300) for process in both] == [0, 0]
    for alone, other in ("01", "10"):
        result = run([*words, alone, "2"])
        assert result.returncode == 1
        said = f"rank {alone} has timed out after 2 s: rank {other} did not come"
        assert said in result.stderr


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("get", "MPI_Init of rank 0 has not ended within 4 s: rank 1 ended or hangs"),
        ("barrier_in", "rank 0 has timed out after 4 s: rank 1 did not come"),  # MPI_Finalize's
    ],
)
def test_a_rank_that_ends_inside_mpi_is_named(where: str, said: str, tmp_path: Path) -> None:
    """MPI waits forever: whoever is in it ends in time, and says who does not answer."""
    program = tmp_path / "leaves.py"
    program.write_text(LEAVES)
    result = run([*TORCHRUN, str(program)], timeout=300, WHERE=where)
    assert result.returncode == 1
    found = re.findall(r"backend ddl: .*", result.stderr)
    assert found == [f"backend ddl: {said}"], result.stderr


def test_killed_ranks_leave_nothing_in_dev_shm(tmp_path: Path) -> None:
    """ddlrun sweeps after its ranks; under torchrun, each host's first rank sees to it."""
    before = segments()
    program = tmp_path / "fails.py"
    killed = FAILS.replace("os._exit(7)", f"os.kill(os.getpid(), {signal.SIGKILL.value})")
    program.write_text(killed)
    result = run([*TORCHRUN, "--max-restarts", "2", str(program), "2"])
    assert result.returncode == 0, result.stderr[-4000:]
    deadline = time.monotonic() + 90  # the sweep waits for the other ranks of the host
    while (left := segments() - before - held()) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left


def segments() -> set[str]:
    """Names of MPICH's shared memory."""
    return {path.name for path in Path("/dev/shm").glob("mpich_*")}


def held() -> set[str]:
    """Those of living jobs."""
    found = set()
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"/dev/shm/(mpich_\S+)$", maps.read_text(), re.M))
    return found
