"""Horovod's GPU operations for PyTorch, on the simulated CUDA: nothing here runs on a GPU.

Horovod is built as its recipe patches it, for the two frameworks at once, and its kernels are run
by the host.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ddlce.elf import read_elf
from support.cudatorch import launch_torch
from support.horovodsim import Horovod
from support.run import run

pytestmark = [pytest.mark.built, pytest.mark.slow, pytest.mark.timeout(1800)]

PROGRAM = Path(__file__).parent / "programs" / "horovod_simulated.py"
TESTS = Path(__file__).parents[2] / "recipes" / "horovod" / "tests"
#: Of the cases there, those of operations.
MODULES = ("reduce", "move", "gradients", "sets", "errors", "join")

FINE = ("begun", "passed")

Result = subprocess.CompletedProcess[str]


class Simulated:
    """Horovod, built, and the variables of its programs."""

    def __init__(self, prefix: Path, variables: dict[str, str], folder: Path) -> None:
        self.prefix = prefix
        self.horovod = Horovod(prefix, variables, folder)
        self.variables = {
            **variables,
            "PYTHONPATH": f"{self.horovod.source}:{variables['PYTHONPATH']}:{TESTS}",
            "CUDASIM_KERNELS": str(self.horovod.kernels),
            "HVD_DEVICE": "cuda",
            "HOROVOD_DYNAMIC_PROCESS_SETS": "1",
            "HOROVOD_STALL_CHECK_TIME_SECONDS": "15",
            "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "60",
        }

    def run(self, ranks: int, *words: str | Path, **more: str) -> Result:
        """Run a program on some ranks; `more` are variables."""
        return launch_torch(self.prefix, ranks, {**self.variables, **more}, *words)


@pytest.fixture(scope="module")
def simulated(
    prefix: Path, simulated_torch: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Simulated:
    return Simulated(prefix, simulated_torch, tmp_path_factory.mktemp("horovod"))


def names(module: Path) -> list[str]:
    return re.findall(r"^@case\ndef (\w+)", module.read_text(), re.MULTILINE)


def passes(done: Result, ranks: int) -> None:
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    assert done.stdout.count("all well") == ranks


def test_pytorchs_module_alone_has_gpu_operations(simulated: Simulated) -> None:
    commands = simulated.horovod.commands
    has = {name: json.dumps(commands[name]) for name in commands}
    for words in ("-DHAVE_GPU=1", "-DHAVE_CUDA=1", "-DHAVE_NCCL=1", "-DHOROVOD_GPU_ALLREDUCE=68"):
        assert words in has["torch"]
        assert words not in has["tensorflow"]
    for file in ("cuda", "gpu", "nccl", "ddl_gpu", "mpi_gpu", "adasum_gpu"):
        assert f"/ops/{file}_operations.cc" in has["torch"]
        assert f"/ops/{file}_operations.cc" not in has["tensorflow"]
    assert "xla_mpi_ops" not in has["tensorflow"]
    for common in ("-DHAVE_DDL=1", "-DHAVE_MPI=1", "-DHAVE_GLOO=1", "/ops/ddl_operations.cc"):
        assert all(common in commands for commands in has.values()), common


def test_cudas_runtime_is_shared(simulated: Simulated) -> None:
    (module,) = (simulated.horovod.source / "horovod" / "torch").glob("mpi_lib_v2*.so")
    elf = read_elf(module.read_bytes())
    assert elf
    assert {"libcudart.so.13", "libnccl.so.2", "libddl.so.1"} <= set(elf.needed)
    said = run(["nm", module], check=True).stdout
    assert " U cudaMemcpyAsync@libcudart.so.13" in said
    assert not re.findall(r"^.* [tT] cuda[A-Z].*", said, re.MULTILINE)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize(
    "settings",
    [{}, {"HOROVOD_BATCH_D2D_MEMCOPIES": "0"}, {"HOROVOD_GPU_OPERATIONS": "NCCL"}],
    ids=["DDL", "a copy for each tensor", "NCCL"],
)
def test_results_are_right_with_each_setting(
    simulated: Simulated, ranks: int, settings: dict[str, str]
) -> None:
    passes(simulated.run(ranks, PROGRAM, **settings), ranks)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_cases_of_cpus(simulated: Simulated, tmp_path: Path, ranks: int) -> None:
    """What operations on a CPU's tensors must do, those on a GPU's do; Adasum is another there."""
    modules = [f"cases_horovod_{name}" for name in MODULES]
    cases = [name for module in modules for name in names(TESTS / f"{module}.py")]
    only = ",".join(name for name in cases if "adasum" not in name)
    words: list[str | Path] = [TESTS / "hvd_cases.py", tmp_path, "torch", *modules]
    done = simulated.run(ranks, *words, HVD_ONLY=only)
    begun = 0
    for rank in range(ranks):
        lines = [json.loads(line) for line in (tmp_path / str(rank)).read_text().splitlines()]
        begun += len(dict(lines))
        wrong = [f"rank {rank}: {' '.join(line)}" for line in lines if line[1] not in FINE]
        assert not wrong, "\n".join(wrong) + done.stderr[-2000:]
    assert begun >= 75 * ranks
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_kernel_that_is_not_launched_is_an_error(simulated: Simulated) -> None:
    words = (PROGRAM, "fused_tensors_of_odd_sizes")
    done = simulated.run(1, *words, CUDASIM_FAULT="launch@2")
    assert done.returncode != 0
    assert "D2DMemcpyCudaImpl failed: too many resources requested for launch" in done.stderr


def test_an_unknown_kernel_ends_the_program(simulated: Simulated) -> None:
    done = simulated.run(1, PROGRAM, "fused_tensors_of_odd_sizes", CUDASIM_KERNELS="")
    assert done.returncode != 0
    assert "launches the kernel _ZN7horovod6common" in done.stderr
