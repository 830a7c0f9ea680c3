"""Who carries out Horovod's operations: chosen when it is built, by the launcher, by the user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HERE, Result, Run

RANKS = 2
OPERATIONS = ["ALLREDUCE", "ALLGATHER", "BCAST", "ALLTOALL", "REDUCESCATTER"]
PROGRAM = "backends.py"
INIT = "import horovod.torch as hvd; hvd.init(); "


def horovodrun(*words: str, env: dict[str, str] | None = None) -> Result:
    """Runs horovodrun of the python that runs these tests."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("horovodrun")), *words],
        capture_output=True,
        text=True,
        timeout=570,
        env=os.environ | (env or {}),
        check=False,
    )


def performed(timeline: Path) -> set[str]:
    """The operations in a timeline, with who carried them out: DDL_ALLREDUCE, ..."""
    # Horovod leaves the list open, for it may be killed.
    events = json.loads(timeline.read_text().rstrip().rstrip(",").removesuffix("]") + "]")
    names = {event.get("name", "") for event in events}
    return {n for n in names if n.split("_")[0] in ("DDL", "MPI", "GLOO")}


def by(who: str) -> set[str]:
    return {f"{who}_{operation}" for operation in OPERATIONS}


# DDL leaves a reducescatter with blocks of different sizes to MPI.
BY_DDL = by("DDL") | {"MPI_REDUCESCATTER"}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [(None, BY_DDL), ("DDL", BY_DDL), ("mpi", by("MPI")), ("GLOO", by("GLOO"))],
)
def test_ddlrun(ddlrun: Run, tmp_path: Path, chosen: str | None, expected: set[str]) -> None:
    env = {"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}
    if chosen is not None:
        env["HOROVOD_CPU_OPERATIONS"] = chosen
    result = ddlrun(RANKS, PROGRAM, env=env)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("is content") == RANKS
    assert performed(tmp_path / "timeline.json") == expected


@pytest.mark.parametrize(("launcher", "expected"), [("--mpi", BY_DDL), ("--gloo", by("GLOO"))])
def test_horovodrun(tmp_path: Path, launcher: str, expected: set[str]) -> None:
    timeline = tmp_path / "timeline.json"
    result = horovodrun(
        *(launcher, "-np", str(RANKS), "--timeline-filename", str(timeline)),
        *(sys.executable, str(HERE / PROGRAM)),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("is content") == RANKS
    assert performed(timeline) == expected


# Each rank writes its lines in pieces, each piece with a system call of its own.
PIECES = """
import os, time
rank = os.environ.get("HOROVOD_RANK") or os.environ["PMI_RANK"]
for number in range(200):
    for piece in (f"rank {rank} ", f"says {number}", "\\n"):
        os.write(1, piece.encode())
        time.sleep(0.0005 * ((number + int(rank)) % 3))
"""


@pytest.mark.parametrize(("launcher", "prefix"), [("--mpi", "[{}] "), ("--gloo", "[{}]<stdout>:")])
def test_lines_of_ranks_stay_whole(launcher: str, prefix: str) -> None:
    result = horovodrun(launcher, "-np", str(RANKS), sys.executable, "-c", PIECES)
    assert result.returncode == 0, result.stdout + result.stderr
    lines = [line for line in result.stdout.splitlines() if "says" in line]
    for rank in range(RANKS):
        mine = [line for line in lines if f"rank {rank} " in line]
        assert mine == [f"{prefix.format(rank)}rank {rank} says {n}" for n in range(200)]
    assert len(lines) == RANKS * 200


def test_check_build() -> None:
    result = horovodrun("--check-build")
    assert result.returncode == 0, result.stderr
    marks = {
        line.split("] ")[1].strip(): line.strip()[1]
        for line in result.stdout.splitlines()
        if line.strip().startswith("[")
    }
    assert marks == {
        **{"TensorFlow": "X", "PyTorch": "X", "MXNet": " "},
        **{"MPI": "X", "Gloo": "X"},
        **{"NCCL": " ", "DDL": "X", "CCL": " "},
    }


def test_operations_that_do_not_exist(ddlrun: Run) -> None:
    result = ddlrun(RANKS, code=INIT, env={"HOROVOD_CPU_OPERATIONS": "CCL"})
    assert result.returncode == 1
    assert (
        "HOROVOD_CPU_OPERATIONS=CCL is not available; choose one of DDL, MPI, GLOO."
        in result.stderr
    )
    assert "core dumped" not in result.stderr


@pytest.mark.parametrize("chosen", ["DDL", "MPI"])
def test_operations_that_need_mpi(chosen: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", INIT],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": chosen},
        check=False,
    )
    assert result.returncode == 1
    assert f"HOROVOD_CPU_OPERATIONS={chosen} needs the MPI controller" in result.stderr
    assert "start it with ddlrun, mpirun or horovodrun --mpi" in result.stderr


def test_after_mpi4py_has_started_mpi(ddlrun: Run, tmp_path: Path) -> None:
    code = f"from mpi4py import MPI; import sys; sys.path.insert(0, {str(HERE)!r}); "
    code += "import backends; backends.main(); assert not MPI.Is_finalized(); "
    code += "assert MPI.COMM_WORLD.allreduce(1) == 2"
    env = {"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}
    result = ddlrun(RANKS, code=code, env=env)
    assert result.returncode == 0, result.stderr
    assert performed(tmp_path / "timeline.json") == BY_DDL


def test_beside_the_programs_own_ddl(ddlrun: Run) -> None:
    code = "import ddl, numpy as np; ddl.init(); " + INIT
    code += "import torch; x = hvd.allreduce(torch.ones(3), op=hvd.Sum, name='x'); "
    code += "hvd.shutdown(); y = ddl.allreduce(np.ones(3, dtype=np.float32)); "
    code += "assert x.tolist() == list(y) == [2, 2, 2], (x, y)"
    result = ddlrun(RANKS, code=code)
    assert result.returncode == 0, result.stderr


def test_wrong_options_of_ddl(ddlrun: Run) -> None:
    result = ddlrun(RANKS, code=INIT, env={"DDL_OPTIONS": "-mode nonsense"})
    assert result.returncode == 1
    assert "Horovod could not be initialized: ddl_init failed: " in result.stderr
    assert "nonsense" in result.stderr


def test_a_part_of_the_ranks_has_mpi(ddlrun: Run, tmp_path: Path) -> None:
    """DDL needs all ranks of a job. Two halves of it, each with its own Horovod, go by MPI."""
    code = "from mpi4py import MPI; r = MPI.COMM_WORLD.rank; import horovod.torch as hvd, torch; "
    code += "hvd.init(comm=[0, 1] if r < 2 else [2, 3]); "
    code += "x = hvd.allreduce(torch.tensor([float(r)]), op=hvd.Sum, name='x'); "
    code += "assert x.item() == (1 if r < 2 else 5), x"
    result = ddlrun(4, code=code)
    assert result.returncode == 0, result.stderr
    assert "using MPI to perform CPU operations" in result.stderr


@pytest.mark.slow  # 10 GiB of memory for the two ranks
@pytest.mark.parametrize("operations", ["DDL", "MPI"])
def test_a_result_of_more_than_2_31_elements(ddlrun: Run, operations: str) -> None:
    """DDL gathers it, the second block beyond 2**31; MPI, which counts in int, is refused it."""
    code = (
        "import torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "rank = hvd.rank()\n"
        "rows = [2**31 + 1000, 3000]\n"
        "own = torch.full((rows[rank],), rank + 1, dtype=torch.uint8)\n"
        "out = hvd.allgather(own, name='great')\n"
        "assert out.shape == (sum(rows),), out.shape\n"
        "assert (out[:rows[0]] == 1).all()\n"
        "assert (out[rows[0]:] == 2).all()\n"
        "print('is content')\n"
    )
    result = ddlrun(RANKS, code=code, env={"HOROVOD_CPU_OPERATIONS": operations})
    if operations == "DDL":
        assert result.returncode == 0, result.stderr
        assert result.stdout.count("is content") == RANKS
    else:
        assert result.returncode != 0
        assert "2147484648 elements are more than the 2147483647" in result.stderr
