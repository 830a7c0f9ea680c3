"""The CUDA variant of libddl, compiled against pinned wheels of CUDA and NCCL."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.libddl import ROOM, build_libddl
from support.pip import Unavailable, pip_prefix
from support.run import run

Result = subprocess.CompletedProcess[str]

PARTS = ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "nccl")


def nvidia_wheels() -> Path:
    """`site-packages/nvidia` with CUDA's runtime, its headers, and NCCL; skips without them."""
    try:
        return next(pip_prefix("cuda").glob("lib/python3*/site-packages/nvidia"))
    except Unavailable as error:
        pytest.skip(str(error))


def build_cuda_variant(prefix: Path, folder: Path) -> Path:
    """The folder with libddl.so.1, as `build_libddl`."""
    folders = (prefix, *(nvidia_wheels() / part for part in PARTS))
    paths = ";".join(map(str, folders))
    return build_libddl(prefix, folder, "-DDDL_CUDA=ON", f"-DCMAKE_PREFIX_PATH={paths}")


def launch_simulated(
    prefix: Path,
    library: Path,
    cuda: str,
    program: str,
    *arguments: str,
    n: int,
    hosts: int = 0,
    gpus: int = 2,
    **variables: str,
) -> Result:
    """Run a program of recipes/ddl/tests/device/programs on a simulated CUDA, with small chunks.

    Args:
        prefix: the environment whose Python and MPI to use.
        library: the folder of `build_cuda_variant`.
        cuda: of `build_cudasim`.
        program: its name without `.py`.
        hosts: how many they pretend to be on; 0: the one.
        gpus: of each host; ranks take them in turn.
    """
    environment = {
        **clean_environment(prefix, os.environ),
        # The name of the library is that of the environment's: what is loaded first serves all.
        "LD_PRELOAD": f"{library}/libddl.so.1 {cuda}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "DDL_SHM_CHUNK": "4096",
        "DDL_OPTIONS": "-dbg_level 1",
        "CUDASIM_DEVICES": str(gpus),
        **({"DDL_FAKE_HOSTS": str(hosts)} if hosts else {}),
        **variables,
    }
    script = ROOM / "tests" / "device" / "programs" / f"{program}.py"
    command = [prefix / "bin" / "mpiexec", "-n", n, prefix / "bin" / "python", script, *arguments]
    done = run([str(word) for word in command], env=environment)
    for left in Path("/dev/shm").glob(f"cudasim-{os.geteuid()}-*"):  # of ranks that were killed
        if not Path("/proc", left.name.split("-")[2]).exists():
            left.unlink(missing_ok=True)
    return done
