"""`init_process_group("ddl")` under torchrun and mpiexec, and where launchers disagree."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ddl_torch import _pmi

BIN = Path(sys.executable).parent
TORCHRUN = [str(BIN / "torchrun"), "--standalone", "--nproc-per-node"]
MPIEXEC = [str(BIN / "mpiexec"), "-n"]

SUM = """
import os, sys
import torch, torch.distributed as dist
dist.init_process_group("ddl")
rank, size = dist.get_rank(), dist.get_world_size()
x = torch.full((1000,), rank + 1)
dist.all_reduce(x)
assert x.eq(size * (size + 1) // 2).all()
import ddl
assert (ddl.rank(), ddl.size()) == (rank, size)
assert ddl.num_hosts() == 1 and ddl.local_rank() == int(os.environ["LOCAL_RANK"])
sys.stdout.write(f"rank {rank} of {size}, {os.environ['RANK']} of {os.environ['WORLD_SIZE']}\\n")
dist.destroy_process_group()
"""

Result = subprocess.CompletedProcess[str]


def run(command: list[str], tmp_path: Path, code: str, **variables: str) -> Result:
    program = tmp_path / "program.py"
    program.write_text(code)
    env = {name: value for name, value in os.environ.items() if not name.startswith("DDL_")}
    return subprocess.run(
        [*command, str(program)],
        capture_output=True,
        text=True,
        timeout=300,
        env=env | {"OMP_NUM_THREADS": "1"} | variables,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        [*TORCHRUN, "3"],
        [*MPIEXEC, "3", sys.executable],
        # An agent that is itself a rank of MPI.
        [*MPIEXEC, "1", *TORCHRUN, "3"],
    ],
    ids=["torchrun", "mpiexec", "torchrun under mpiexec"],
)
def test_ranks_meet(command: list[str], tmp_path: Path) -> None:
    result = run(command, tmp_path, SUM)
    assert result.returncode == 0, result.stderr
    told = sorted(re.findall(r"rank .*", result.stdout))
    assert told == [f"rank {rank} of 3, {rank} of 3" for rank in range(3)]
    assert "PMI" not in result.stderr  # they part in good order


def test_a_program_without_a_launcher_is_alone(tmp_path: Path) -> None:
    result = run([sys.executable], tmp_path, SUM)
    assert (result.returncode, result.stdout) == (0, "rank 0 of 1, 0 of 1\n"), result.stderr


def test_a_task_that_mpi_does_not_know_is_refused(tmp_path: Path) -> None:
    srun = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4"}
    result = run([sys.executable], tmp_path, SUM, **srun)
    assert result.returncode == 1
    assert "srun started 4 processes (SLURM_STEP_NUM_TASKS=4;" in result.stderr


def test_launchers_that_disagree_are_both_named(tmp_path: Path) -> None:
    code = "import os; os.environ |= dict(RANK='3', WORLD_SIZE='4', MASTER_ADDR='localhost')\n"
    code += "import torch.distributed as dist\n"
    code += "dist.init_process_group('ddl', store=dist.HashStore(), rank=3, world_size=4)\n"
    result = run([*MPIEXEC, "2", sys.executable], tmp_path, code)
    assert result.returncode != 0
    assert "is rank 3 of 4 for torch (RANK, WORLD_SIZE), but rank " in result.stderr
    assert "of 2 for MPI (PMI_RANK, PMI_SIZE)" in result.stderr


FORK = """
child = os.fork() if rank == 0 else None
if child == 0: sys.exit(3)
if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
import numpy
comm = ddl.new_group([*range(size)])  # MPI asks the rank's server for what is not known yet
assert ddl.allreduce(numpy.ones(1), group=comm)[0] == size
"""


def test_a_forked_process_leaves_the_server_of_mpi_to_its_rank(tmp_path: Path) -> None:
    result = run([*TORCHRUN, "2"], tmp_path, SUM + FORK)
    assert result.returncode == 0, result.stderr


def test_a_rank_that_fails_ends_the_job_of_torchrun(tmp_path: Path) -> None:
    fails = "if rank == 1: raise SystemExit('this rank has had enough')\ndist.barrier()\n"
    code = SUM.replace("dist.destroy", fails + "dist.destroy")
    result = run([*TORCHRUN, "2"], tmp_path, code)
    assert result.returncode == 1
    assert "this rank has had enough" in result.stderr


def test_a_group_of_some_ranks_cannot_start_mpi(tmp_path: Path) -> None:
    code = "import torch.distributed as dist\ndist.init_process_group('gloo')\n"
    code += "dist.new_group([0, 1], backend='ddl')\n"
    result = run([*TORCHRUN, "3"], tmp_path, code)
    assert result.returncode == 1
    assert "MPI cannot begin with a group of 2 of 3 ranks" in result.stderr


def test_a_group_of_all_ranks_can(tmp_path: Path) -> None:
    code = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    code += "x = torch.ones(3)\ndist.all_reduce(x, group=dist.new_group(backend='ddl'))\n"
    code += "assert x.eq(2).all()\n"
    result = run([*TORCHRUN, "2"], tmp_path, code)
    assert result.returncode == 0, result.stderr


def test_a_rank_that_does_not_come_is_missed_in_time(tmp_path: Path) -> None:
    code = "import os, datetime, torch.distributed as dist, time\n"
    code += "two = datetime.timedelta(seconds=5)\n"
    code += "if os.environ['RANK'] == '0': time.sleep(60)\n"
    code += "dist.init_process_group('ddl', timeout=two)\n"
    result = run([*TORCHRUN, "2"], tmp_path, code)
    assert result.returncode == 1
    assert "5000ms" in result.stderr or "timed out" in result.stderr.lower()


@pytest.mark.parametrize(
    ("hosts", "blocks"),
    [
        ("a", "(0,1,1)"),
        ("aaaa", "(0,1,4)"),
        ("aabb", "(0,2,2)"),
        ("aab", "(0,1,2),(1,1,1)"),
        ("abab", "(0,2,1),(0,2,1)"),
    ],
)
def test_hosts_as_mpi_has_them(hosts: str, blocks: str) -> None:
    assert _pmi.mapping(hosts) == f"(vector,{blocks})"
