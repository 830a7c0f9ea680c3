"""A process that a launcher made one of several, but not a rank of MPI, does not work alone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ddl import _core
from ddl.launch.run import peer_timeout

from conftest import BIN, Launch, environment

SIZE = "import ddl; ddl.init(); print(ddl.size())"


def alone(**variables: object) -> subprocess.CompletedProcess[str]:
    """A program that no mpiexec has started, with a launcher's variables."""
    command = [sys.executable, "-c", SIZE]
    env = environment() | {name: str(value) for name, value in variables.items()}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize(
    ("rank", "size", "fix"),
    [
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "srun --mpi=pmi2"),
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "ddlrun"),
        ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "ddlrun"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "ddlrun"),
        ("FLUX_TASK_RANK", "FLUX_JOB_SIZE", "flux run -o pmi=simple"),
        ("RANK", "WORLD_SIZE", "torch.distributed.init_process_group"),
    ],
)
def test_one_of_several_that_mpi_does_not_know(rank: str, size: str, fix: str) -> None:
    result = alone(**{rank: 0, size: 4})
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert f"started 4 processes ({size}=4; this one is {rank}=0), but MPI" in last
    assert fix in last
    assert f"`env -u {size}`" in last


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"SLURM_PROCID": 0, "SLURM_NTASKS": 4},  # a job's script
        {"SLURM_PROCID": 0, "SLURM_STEP_NUM_TASKS": 1},  # srun --pty
        {"FLUX_JOB_SIZE": 4},
        {"WORLD_SIZE": 4},
        {"RANK": 0, "WORLD_SIZE": ""},
        {"RANK": "first", "WORLD_SIZE": 4},
    ],
)
def test_one_that_is_alone(variables: dict[str, object]) -> None:
    result = alone(**variables)
    assert (result.returncode, result.stdout) == (0, "1\n"), result.stderr


@pytest.mark.parametrize("n", [1, 3])
def test_ranks_of_one_host_listen_nowhere(passes: Launch, n: int) -> None:
    assert passes("listening", n=n).stdout.count("listens at [] None") == n


def test_a_choice_of_the_user_goes_before(passes: Launch) -> None:
    result = passes("listening", n=2, env={"UCX_TLS": "tcp,sm,self"})
    assert result.stdout.count("b'tcp,sm,self'") == 2


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
@pytest.mark.parametrize("is_bound", [True, False])
def test_ranks_that_share_a_processor(is_bound: bool) -> None:
    """As a job's step with one processor gives them to torchrun: once, and with the remedy."""
    cpus = sorted(os.sched_getaffinity(0))[: 1 if is_bound else None]
    done = subprocess.run(
        [str(BIN / "mpiexec"), "-n", "2", sys.executable, "-c", SIZE],
        capture_output=True,
        text=True,
        env=environment(),
        preexec_fn=lambda: os.sched_setaffinity(0, cpus),
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "2\n2\n"), done.stderr
    assert done.stderr.count("[ddl] warning:") == is_bound, done.stderr
    if is_bound:
        assert "ranks 0 and 1 on host " in done.stderr
        assert f" may run on 1 of its {os.cpu_count()} processors only ({cpus[0]})" in done.stderr
        assert "--cpu-bind=cores" in done.stderr


def test_mpiexec_inside_of_another_launcher() -> None:
    """Its proxies are the other launcher's tasks, and ranks have the variables of theirs."""
    outer = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "8"}
    for n in (1, 2):
        done = subprocess.run(
            [str(BIN / "mpiexec"), "-n", str(n), sys.executable, "-c", SIZE],
            capture_output=True,
            text=True,
            env=environment() | os.environ | outer,
            check=False,
        )
        assert (done.returncode, done.stdout) == (0, f"{n}\n" * n), done.stderr


@pytest.mark.parametrize("variable", ["LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID"])
def test_the_shared_memory_of_killed_ranks_goes_with_the_next_start(variable: str) -> None:
    """torchrun starts ranks again, and sweeps nothing."""
    left, held = (Path(f"/dev/shm/mpich_shm_{end}{os.getpid():x}_0") for end in "ab")
    start = "import ddl; ddl.init()"
    try:
        left.touch()
        with held.open("w"):
            env = environment() | {variable: "0"}
            subprocess.run([sys.executable, "-c", start], env=env, check=True)
            assert not left.exists()
            assert held.exists()
    finally:
        left.unlink(missing_ok=True)
        held.unlink(missing_ok=True)


_TRY = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
_CAN = subprocess.run(_TRY, check=False, capture_output=True).returncode == 0


@pytest.mark.skipif(not _CAN, reason="unshare(1) may make no namespaces here")
@pytest.mark.parametrize("launcher", ["mpiexec", "ddlrun"])
def test_a_small_dev_shm_is_said_once(launcher: str) -> None:
    words = [str(BIN / launcher), "-n", "2", sys.executable, "-c", "import ddl; ddl.init()"]
    mount = "mount -t tmpfs -o size=3m tmpfs /dev/shm"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f"{mount} && exec {shlex.join(words)}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # Under mpiexec, the other rank may have taken some of the 3 MiB before the first one looks.
    said = re.findall(r"/dev/shm has [0-3] MiB free, and MPI needs 4 MiB there", done.stderr)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("options", "variable"),
    [("", None), ("", "7.5"), ("-mode r:2 --timeout 3", "7.5"), ("-timeout 3 -timeout 4", None)],
)
def test_ddlrun_knows_the_timeout_of_the_library(options: str, variable: str | None) -> None:
    """It reads it by itself, since a launch host may have no libddl."""
    variables = {"DDL_OPTIONS": options} | ({"DDL_TIMEOUT": variable} if variable else {})
    assert peer_timeout(variables) == _core.timeout_of(options, variable)
