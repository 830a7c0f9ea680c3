"""horovodrun and horovod.run: what they tell ranks, what they need to start, how they go on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import HERE, STALLS, Result

TIMEOUT = 150
THREADS = (
    "import os\n"
    "names = ['OMP_NUM_THREADS', 'TF_NUM_INTRAOP_THREADS', 'TF_NUM_INTEROP_THREADS']\n"
    "print('threads', *[os.environ.get(name) for name in names], flush=True)\n"
)
RUN = """
import horovod
def trained(factor):
    import torch
    from horovod import torch as hvd
    hvd.init()
    total = hvd.allreduce(torch.full((2,), factor * (hvd.rank() + 1.0)), op=hvd.Sum, name="x")
    return hvd.rank(), hvd.size(), total.tolist()
if __name__ == "__main__":
    print(horovod.run(trained, args=(2.0,), num_proc=2, use_{controller}=True))
"""


def launch(program: str, *words: str, timeout: int = TIMEOUT, **env: str) -> Result:
    """Runs a program beside the python that runs these tests, with no word on threads."""
    inherited = {k: v for k, v in os.environ.items() if "NUM_THREADS" not in k}
    return subprocess.run(
        [str(Path(sys.executable).with_name(program)), *words],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=inherited | STALLS | env,
        check=False,
    )


def threads(result: Result) -> list[str]:
    assert result.returncode == 0, result.stdout + result.stderr
    return re.findall(r"threads (.*)", result.stdout)


def discovery(folder: Path, *hosts: str) -> str:
    script = folder / "discover.sh"
    script.write_text("#!/bin/sh\n" + "".join(f"echo {host}\n" for host in hosts))
    script.chmod(0o755)
    return str(script)


def options(controller: str, folder: Path) -> list[str]:
    if controller != "elastic":
        return [f"--{controller}", "-np", "2"]
    script = discovery(folder, "localhost:2")
    return [*("--gloo", "-np", "2", "--min-np", "2", "--network-interfaces", "lo"),
            *("--host-discovery-script", script)]  # fmt: skip


@pytest.mark.parametrize("controller", ["mpi", "gloo", "elastic"])
def test_ranks_share_the_cores_as_under_ddlrun(tmp_path: Path, controller: str) -> None:
    program = (sys.executable, "-c", THREADS)
    cores, *_ = threads(launch("ddlrun", "-H", "localhost:2", *program))[0].split()
    words = options(controller, tmp_path)
    expected = f"{cores} {cores} {max(2, int(cores))}"
    assert threads(launch("horovodrun", *words, *program)) == [expected] * 2
    users = launch("horovodrun", *words, *program, OMP_NUM_THREADS="3")
    assert threads(users) == ["3 3 3"] * 2


@pytest.mark.parametrize("controller", ["mpi", "gloo"])
def test_a_program_runs_a_function(tmp_path: Path, controller: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(RUN.format(controller=controller))
    result = launch("python", str(program))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "[(0, 2, [6.0, 6.0]), (1, 2, [6.0, 6.0])]" in result.stdout


@pytest.mark.parametrize("controller", ["mpi", "gloo", "elastic"])
def test_no_framework_is_loaded_to_start_a_job(tmp_path: Path, controller: str) -> None:
    """Each takes seconds: what Horovod was built with is known without."""
    for framework in ("tensorflow", "torch"):
        text = f"open({str(tmp_path / 'loaded')!r}, 'a').write('{framework}')\nraise ImportError\n"
        (tmp_path / f"{framework}.py").write_text(text)
    result = launch("horovodrun", *options(controller, tmp_path), "true", PYTHONPATH=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert not (tmp_path / "loaded").exists()


def test_a_command_that_is_not_there() -> None:
    result = launch("horovodrun", "--gloo", "-np", "1", "no-such-program")
    assert result.returncode != 0
    assert "horovodrun: no-such-program: No such file or directory" in result.stderr + result.stdout


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_an_elastic_job_starts_its_ranks_again(tmp_path: Path, times: int) -> None:
    """And never hangs: the host whose worker has died comes back after a second."""
    words = [*("--gloo", "-np", "2", "--min-np", "1", "--max-np", "2", "--elastic-timeout", "60"),
             *("--host-discovery-script", discovery(tmp_path, "localhost:1", "127.0.0.1:1")),
             *("--blacklist-cooldown-range", "1", "1")]  # fmt: skip
    program = (sys.executable, str(HERE / "hvd_restarts.py"), str(times), str(tmp_path / "deaths"))
    # Beside other programs, a worker may take longer to come than the 30 s that Gloo waits.
    patience = {"HOROVOD_GLOO_TIMEOUT_SECONDS": "300"}
    result = launch("horovodrun", *words, *program, timeout=330 + 30 * times, **patience)
    output = result.stdout + result.stderr
    assert output.count(f"ended with 2 workers after {times} deaths") == 2, output[-4000:]
