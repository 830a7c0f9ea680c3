"""PyTorch for CUDA, unmodified, on the simulated CUDA."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

from ddlce.elf import read_elf
from ddlce.smoke import clean_environment
from support.cudasim import SOURCES, build_cudasim, write_stubs
from support.cudavariant import nvidia_wheels
from support.libddl import build_libddl
from support.pip import Unavailable, pip_prefix
from support.run import run

DDL_TORCH = Path(__file__).parents[2] / "recipes" / "ddl-torch" / "tests"

#: Libraries of NVIDIA that nothing here calls, though PyTorch is linked with them: their names and
#: those of their functions begin so.
UNUSED = re.compile(
    r"(?:lib)?(cublas|cudnn|cufft|cufile|cupti|curand|cusolver|cusparse|nvrtc|nvshmem)", re.I
)


def simulate_torch(prefix: Path, folder: Path) -> dict[str, str]:
    """Build what PyTorch and libddl need on a simulated CUDA 13.

    Args:
        prefix: the environment whose MPI and libraries to use.
        folder: an empty one.

    Returns:
        What a program's environment has to have.
    """
    roots = [_site("nvcc") / "nvidia", nvidia_wheels()]
    site = _site("torch-cuda", "--no-deps")
    cuda = build_cudasim(roots, folder / "cuda")
    paths = ";".join(map(str, (prefix, roots[0] / "cu13", roots[1] / "nccl")))
    options = ("-DDDL_CUDA=ON", f"-DCMAKE_PREFIX_PATH={paths}")
    libddl = build_libddl(prefix, folder / "libddl", *options)
    operations = _build_operations(site / "torch", cuda13_headers(), folder / "operations.so")
    runtime = Path(cuda.split()[0])
    unused = _build_unused(site / "torch" / "lib", runtime, folder / "unused")
    return {
        **_settings(operations),
        "LD_PRELOAD": f"{libddl}/libddl.so.1 {cuda}",
        "LD_LIBRARY_PATH": str(unused),
        "PYTHONPATH": f"{SOURCES}/torch:{site}",
    }


def simulate_release(prefix: Path, folder: Path) -> dict[str, str]:
    """Build what an installed release for GPUs needs on a simulated CUDA 12 or 13, as it has.

    Args:
        prefix: the release. Its PyTorch, libddl and NVIDIA's other libraries are used as they are.
        folder: an empty one.

    Returns:
        What a program's environment has to have.
    """
    roots = [nvidia_wheels()]
    if (prefix / "lib" / "libcudart.so.12").exists():
        headers = cuda12_headers()
    else:
        roots, headers = [_site("nvcc") / "nvidia", *roots], cuda13_headers()
    cuda = build_cudasim(roots, folder / "cuda")
    (torch,) = prefix.glob("lib/python3*/site-packages/torch")
    operations = _build_operations(torch, headers, folder / "operations.so")
    return {
        **_settings(operations),
        "LD_PRELOAD": cuda,
        "PYTHONPATH": f"{SOURCES}/torch",
    }


def launch_torch(
    prefix: Path,
    ranks: int | None,
    simulated: dict[str, str],
    *words: str | Path,
    options: str = "",
    within: Callable[[list[str]], list[str]] = list,
) -> subprocess.CompletedProcess[str]:
    """Run Python on some ranks of this host, on a simulated CUDA.

    Args:
        prefix: the environment whose ddlrun and Python to use.
        ranks: how many; None: as ddlrun finds.
        simulated: of `simulate_torch` or `simulate_release`, with what else the ranks have.
        within: makes another command of ddlrun's, that runs it.
    """
    count = ("-np", ranks) if ranks else ()
    launch = (prefix / "bin" / "ddlrun", *count, "-timeout", 600, *options.split())
    variables = (f"{name}={value}" for name, value in simulated.items())
    return run(
        within([str(word) for word in (*launch, "env", *variables, "python", *words)]),
        env=clean_environment(prefix, os.environ),
    )


def launch_on_gpus(
    prefix: Path, ranks: int, simulated: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run ddl-torch's own test for GPUs, as `launch_torch`, from a copy in `folder`."""
    tests = shutil.copytree(DDL_TORCH, folder / "tests")
    program = tests / "on_gpus.py"
    # Matrices that keep a GPU busy for a while would keep a CPU busy for minutes.
    program.write_text(program.read_text().replace("4096, 4096", "64, 64"))
    variables = {**simulated, "PYTHONPATH": f"{simulated['PYTHONPATH']}:{tests}"}
    return launch_torch(prefix, ranks, variables, program)


def _settings(operations: Path) -> dict[str, str]:
    return {
        "PYTHONDONTWRITEBYTECODE": "1",
        "CUDASIM_TORCH": str(operations),
        "OMP_NUM_THREADS": "1",
        "TORCH_CPP_LOG_LEVEL": "ERROR",  # it tells that operations have another kernel now
    }


def cuda_headers() -> tuple[Path, Path]:
    """The wheels' CUDA 13 with its compiler, and the folder of NCCL's headers."""
    return _site("nvcc") / "nvidia" / "cu13", nvidia_wheels() / "nccl" / "include"


def cuda13_headers() -> list[Path]:
    """The folders of CUDA 13's headers."""
    include = _site("nvcc") / "nvidia" / "cu13" / "include"
    return [include, include / "cccl"]


def cuda12_headers() -> list[Path]:
    """The folders of CUDA 12's headers."""
    parts = ("cuda_runtime", "cuda_nvcc", "cuda_cccl")
    return [nvidia_wheels() / part / "include" for part in parts]


def _site(name: str, *options: str) -> Path:
    try:
        return next(pip_prefix(name, *options).glob("lib/python3*/site-packages"))
    except Unavailable as error:
        pytest.skip(str(error))


def _build_operations(torch: Path, headers: list[Path], made: Path) -> Path:
    includes = (torch / "include", torch / "include/torch/csrc/api/include", *headers)
    command = [
        *("g++", "-std=c++20", "-O1", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"),
        *(f"-isystem{path}" for path in includes),
        *(SOURCES / "torch" / "ops.cc", f"-L{torch}/lib", "-ltorch_cpu", "-lc10", "-lc10_cuda"),
        *("-Wl,-rpath," + str(torch / "lib"), "-o", made),
    ]
    subprocess.run([str(word) for word in command], check=True)
    return made


def _build_unused(torch: Path, runtime: Path, folder: Path) -> Path:
    """Libraries with the names of NVIDIA's, whose functions end the program with their names."""
    folder.mkdir()
    needed: set[str] = set()
    functions: dict[str, set[str]] = defaultdict(set)  # version of the symbol → names
    for library in torch.glob("*.so*"):
        elf = read_elf(library.read_bytes())
        needed |= set(elf.needed if elf else ())
        command = ["nm", "-D", "--undefined-only", "--with-symbol-versions", str(library)]
        said = run(command, check=True).stdout
        for name, _, version in (line.split()[-1].partition("@") for line in said.splitlines()):
            if UNUSED.match(name):
                functions[version].add(name)
    unused = sorted(name for name in needed if UNUSED.match(name))
    without = functions.pop("", set())  # whichever library has them, the loader finds them
    for number, name in enumerate(unused):
        version = "NVSHMEM" if "nvshmem" in name else name
        own = sorted(functions[version])
        more = without if number == 0 else ()
        source = write_stubs(folder / f"{name}.c", [*own, *sorted(more)])
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(folder / name)]
        if own:
            script = folder / f"{name}.map"
            script.write_text(f"{version} {{ global: {'; '.join(own)}; }};\n")
            command.append(f"-Wl,--version-script={script}")
        subprocess.run([*command, str(source), str(runtime)], check=True)
    return folder
