"""What happens to a job when a rank dies, raises, leaves or stalls; elastic jobs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import HERE, QUIET, STALLS, Result, Run

FRAMEWORKS = ["torch", "tensorflow", "keras"]
# Enough for two ranks to import TensorFlow on a busy machine; a hang is a failure after that.
TIMEOUT = 150
HorovodRun = Callable[..., Result]

# What a fault must be called in the job's output, whoever launched it.
SAID = {
    "raises": "KeyError: 'the fault of this test'",
    "leaves": "Horovod has been shut down",
    "stalls": "is stalled for longer than",
}


@pytest.fixture
def horovodrun() -> HorovodRun:
    """Runs a script beside these tests by the horovodrun of this python."""

    def run(*options: str, script: str, words: tuple[str, ...]) -> Result:
        program = str(Path(sys.executable).with_name("horovodrun"))
        return subprocess.run(
            [program, *options, sys.executable, str(HERE / script), *words],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=os.environ | QUIET | STALLS,
            check=False,
        )

    return run


def check(result: Result, fault: str) -> None:
    """All have begun, the fault is named, and nobody went on as if nothing had happened."""
    output = result.stdout + result.stderr
    assert "rank 0 of 2 begins" in output, output[-4000:]
    assert "rank 1 of 2 begins" in output, output[-4000:]
    if fault == "nothing":
        assert result.returncode == 0, output[-4000:]
        assert "rank 0 has trained" in output
        assert "rank 1 has trained" in output
        return
    assert result.returncode != 0, output[-4000:]
    assert "has trained" not in output, output[-4000:]
    assert SAID.get(fault, "") in output, output[-4000:]


@pytest.mark.parametrize("fault", ["dies", "raises", "leaves", "stalls"])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rank_fails(ddlrun: Run, framework: str, fault: str) -> None:
    result = ddlrun(2, "hvd_life.py", framework, fault, timeout=TIMEOUT)
    check(result, fault)
    assert "timeout after" not in result.stderr
    if fault == "dies":
        assert "rank 1 on localhost was killed by SIGKILL" in result.stderr


@pytest.mark.parametrize("controller", ["--mpi", "--gloo"])
@pytest.mark.parametrize("fault", ["nothing", "dies", "raises", "stalls"])
def test_a_rank_fails_under_horovodrun(horovodrun: HorovodRun, controller: str, fault: str) -> None:
    options = (controller, "-np", "2", "-H", "localhost:2")
    check(horovodrun(*options, script="hvd_life.py", words=("torch", fault)), fault)


@pytest.mark.parametrize("framework", ["tensorflow", "keras"])
def test_horovodrun_with_gloo_knows_all_frameworks(horovodrun: HorovodRun, framework: str) -> None:
    options = ("--gloo", "-np", "2", "-H", "localhost:2")
    check(horovodrun(*options, script="hvd_life.py", words=(framework, "nothing")), "nothing")


@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_an_elastic_job_goes_on_without_a_worker(
    horovodrun: HorovodRun, tmp_path: Path, framework: str
) -> None:
    """Two hosts with a slot each, both this machine; the second one's worker dies."""
    discover = tmp_path / "discover.sh"
    discover.write_text("#!/bin/sh\necho localhost:1\necho 127.0.0.1:1\n")
    discover.chmod(0o755)
    options = ("--gloo", "-np", "2", "--min-np", "1", "--max-np", "2")
    options += ("--host-discovery-script", str(discover), "--elastic-timeout", "60")
    result = horovodrun(*options, script="hvd_elastic.py", words=(framework,))
    assert "ended with 1 of 2 workers at step 20, weight -10.0" in result.stdout, (
        result.stdout[-3000:] + result.stderr[-3000:]
    )
    assert "ended with 2" not in result.stdout


@pytest.mark.parametrize("operations", ["DDL", "MPI", "GLOO"])
def test_the_job_ends_and_begins_again(ddlrun: Run, operations: str) -> None:
    """shutdown() and init() in one process, five times."""
    code = (
        "import torch, horovod.torch as hvd\n"
        "for turn in range(5):\n"
        "    hvd.init()\n"
        "    out = hvd.allreduce(torch.full((3,), float(hvd.rank())), op=hvd.Sum, name='x')\n"
        "    assert out.tolist() == [1.0] * 3, out\n"
        "    hvd.shutdown()\n"
        "    assert not hvd.is_initialized()\n"
    )
    result = ddlrun(2, code=code, env={"HOROVOD_CPU_OPERATIONS": operations}, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("operations", ["DDL", "MPI", "GLOO"])
@pytest.mark.parametrize("first", ["torch", "tensorflow"])
def test_frameworks_of_one_process_end_one_by_one(ddlrun: Run, first: str, operations: str) -> None:
    """What one Horovod has started, the other one uses still after the first one's shutdown()."""
    code = (
        "import horovod.tensorflow, horovod.torch, tensorflow, torch, sys\n"
        "both = {'torch': (horovod.torch, torch.ones(3)),\n"
        "        'tensorflow': (horovod.tensorflow, tensorflow.ones(3))}\n"
        "one, other = both.pop(sys.argv[1]), both.popitem()[1]\n"
        "def total(hvd, ones): return hvd.allreduce(ones, op=hvd.Sum, name='x').numpy().tolist()\n"
        "for hvd, ones in (one, other):\n"
        "    hvd.init()\n"
        "    assert total(hvd, ones) == [2.0] * 3\n"
        "one[0].shutdown()\n"
        "assert total(*other) == [2.0] * 3\n"
        "one[0].init()\n"
        "assert total(*one) == [2.0] * 3\n"
        "assert total(*other) == [2.0] * 3\n"
        "print(f'rank {other[0].rank()} is content')\n"
    )
    env = {"HOROVOD_CPU_OPERATIONS": operations}
    result = ddlrun(2, first, code=code, env=env, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("is content") == 2


FORK = """
import os, sys, torch, horovod.torch as hvd
hvd.init()
def total(): return hvd.allreduce(torch.ones(3), op=hvd.Sum, name='x').tolist()
assert total() == [2.0] * 3
child = os.fork() if hvd.rank() == 0 else None
if child == 0: sys.exit(3)
if child: assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
assert total() == [2.0] * 3
print("went on", flush=True)
"""


def test_a_forked_process_ends_for_itself(ddlrun: Run) -> None:
    result = ddlrun(2, code=FORK)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("went on") == 2


def test_an_exception_that_a_console_caught_ends_nothing(ddlrun: Run) -> None:
    catch = "import code; code.InteractiveInterpreter().runsource('1 / 0')\n"
    result = ddlrun(2, code=f"import horovod.torch as hvd; hvd.init()\n{catch}")
    assert result.returncode == 0, result.stderr


def test_a_program_goes_on_with_ddl_after_shutdown(ddlrun: Run) -> None:
    """Horovod has started the library, and the program makes use of it."""
    code = (
        "import ddl, numpy, torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "hvd.allreduce(torch.ones(3), name='x')\n"
        "ddl.init()\n"
        "hvd.shutdown()\n"
        "assert ddl.initialized()\n"
        "out = ddl.allreduce(numpy.ones(3, 'float32'), op='sum')\n"
        "assert out.tolist() == [2.0] * 3, out\n"
    )
    result = ddlrun(2, code=code, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr


def test_a_rank_has_work_of_its_own_after_training(ddlrun: Run) -> None:
    """For longer than the library would wait for a rank; the others wait for its end."""
    code = (
        "import time, torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "hvd.allreduce(torch.ones(3), name='x')\n"
        "rank = hvd.rank()\n"
        "hvd.shutdown()\n"
        "if rank == 0: time.sleep(6)\n"
        "print(f'rank {rank} is content')\n"
    )
    result = ddlrun(2, code=code, env={"DDL_OPTIONS": "-timeout 2"}, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("is content") == 2
    assert "failed" not in result.stderr


@pytest.mark.parametrize("operations", ["DDL", "MPI", "GLOO"])
def test_a_rank_that_ends_the_job_says_who_it_is(ddlrun: Run, operations: str) -> None:
    code = (
        "import horovod.torch as hvd\n"
        "hvd.init()\n"
        "if hvd.rank() == 1: raise KeyError('mine')\n"
        "import torch\n"
        "hvd.allreduce(torch.ones(3), name='x')\n"
    )
    result = ddlrun(2, code=code, env={"HOROVOD_CPU_OPERATIONS": operations}, timeout=TIMEOUT)
    assert result.returncode != 0
    assert re.search(r"rank 1 (\(host .*\) )?ends the job: uncaught KeyError", result.stderr)
    assert "not initialised" not in result.stderr


def test_operations_before_init_are_refused() -> None:
    code = (
        "import torch, horovod.torch as hvd\n"
        "from horovod.common.exceptions import HorovodInternalError\n"
        "try: hvd.rank()\n"
        "except ValueError as error: print(error)\n"
        "try: hvd.allreduce(torch.ones(3), name='x')\n"
        "except HorovodInternalError as error: print(error)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert result.stdout.count("use hvd.init()") == 2, result.stdout + result.stderr


def test_one_process_without_a_launcher() -> None:
    code = (
        "import torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "assert (hvd.rank(), hvd.size()) == (0, 1)\n"
        "assert hvd.allreduce(torch.ones(3), name='x').tolist() == [1.0] * 3\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=TIMEOUT)


def test_a_timeline_is_written(ddlrun: Run, tmp_path: Path) -> None:
    """HOROVOD_TIMELINE: one file, of events by the tensors' names."""
    code = (
        "import torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "for turn in range(3): hvd.allreduce(torch.ones(3), name='a tensor of mine')\n"
        "hvd.allgather(torch.ones(3), name='another')\n"
        "hvd.shutdown()\n"
    )
    file = tmp_path / "timeline.json"
    result = ddlrun(2, code=code, env={"HOROVOD_TIMELINE": str(file)}, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    written = file.read_text()
    for words in ("a tensor of mine", "another", "NEGOTIATE_ALLREDUCE", "ALLGATHER"):
        assert words in written


def test_a_timeline_is_begun_and_ended_by_the_program(ddlrun: Run, tmp_path: Path) -> None:
    file = tmp_path / "timeline.json"
    code = (
        "import torch, horovod.torch as hvd\n"
        "hvd.init()\n"
        "hvd.allreduce(torch.ones(3), name='before')\n"
        f"hvd.start_timeline({str(file)!r}, mark_cycles=True)\n"
        "for turn in range(200): hvd.allreduce(torch.ones(3), name='during')\n"
        "hvd.stop_timeline()\n"
        "hvd.allreduce(torch.ones(3), name='after')\n"
        "hvd.shutdown()\n"
    )
    result = ddlrun(2, code=code, env={"HOROVOD_TIMELINE": "DYNAMIC"}, timeout=TIMEOUT)
    assert result.returncode == 0, result.stderr
    written = file.read_text()
    assert "during" in written
    assert "before" not in written
    assert "after" not in written


def test_process_sets_cannot_be_added_unasked(ddlrun: Run) -> None:
    code = (
        "import horovod.torch as hvd\n"
        "hvd.init()\n"
        "try: hvd.add_process_set([0])\n"
        "except ValueError as error: print(error)\n"
    )
    result = ddlrun(2, code=code, timeout=TIMEOUT)
    assert "HOROVOD_DYNAMIC_PROCESS_SETS=1" in result.stdout, result.stderr
