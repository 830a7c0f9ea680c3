"""Builds the simulated CUDA: libraries with NVIDIA's names, for LD_PRELOAD."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from support.run import run

SOURCES = Path(__file__).parents[1] / "cuda-sim"
FLAGS = ("-std=c++17", "-O2", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")

#: The sources of each library.
RUNTIME = ("settings", "memory", "stream", "runtime", "copies", "attributes", "graph", "launch")
DRIVER = ("driver",)
NCCL = ("nccl", "communicator", "group", "settings")


def build_cudasim(nvidia: Sequence[Path], folder: Path) -> str:
    """Compile the simulation for the CUDA that pip environments have.

    Args:
        nvidia: their `site-packages/nvidia`: CUDA's runtime with its headers, and NCCL.
        folder: where to build; made.

    Returns:
        What LD_PRELOAD has to be.
    """
    folder.mkdir()
    objects = _compile(nvidia, folder)
    runtime = _real(nvidia, "libcudart.so.*")
    nccl = _real(nvidia, "libnccl.so.*")
    # Programs ask for the version of each function.
    versions = folder / "versions"
    versions.write_text(f"{runtime.name} {{ global: cuda*; __cuda*; local: *; }};\n")
    libraries = (
        (runtime, RUNTIME, f"-Wl,--version-script={versions}"),
        (Path("libcuda.so.1"), DRIVER, folder / runtime.name),
        (nccl, NCCL, folder / runtime.name),
    )
    return " ".join(
        str(_link(folder, real, [objects[name] for name in names], option))
        for real, names, option in libraries
    )


def _real(nvidia: Sequence[Path], pattern: str) -> Path:
    return next(found for root in nvidia for found in root.glob(f"*/lib/{pattern}"))


def _compile(nvidia: Sequence[Path], folder: Path) -> dict[str, Path]:
    # In CUDA 13, CUB and others have a folder of their own.
    folders = [path for root in nvidia for path in sorted(root.glob("*/include"))]
    includes = [f"-isystem{path}" for path in (*folders, *(f / "cccl" for f in folders))]
    launcher = ["ccache"] if shutil.which("ccache") else []
    running = []
    for source in sorted(SOURCES.glob("*.cc")):
        made = folder / f"{source.stem}.o"
        command = [*launcher, "g++", *FLAGS, *includes, "-c", str(source), "-o", str(made)]
        running.append((made, subprocess.Popen(command)))
    for made, process in running:
        assert process.wait() == 0, made
    return {made.stem: made for made, _ in running}


def _link(folder: Path, real: Path, objects: list[Path], *options: str | Path) -> Path:
    """A library of the same name, in which functions that are not simulated say so."""
    have = set(_functions(*objects))
    missing = sorted(set(_functions(real, "-D")) - have) if real.is_absolute() else []
    stubs = write_stubs(folder / f"{real.name}.c", missing)
    made = folder / real.name
    command = [
        "g++",
        "-shared",
        "-Wl,-z,defs",
        f"-Wl,-soname,{real.name}",
        "-Wl,-rpath,$ORIGIN",
        "-o",
        made,
    ]
    words = [*command, *objects, "-x", "c", stubs, "-x", "none", *options, "-lpthread", "-lrt"]
    subprocess.run([*map(str, words), "-fPIC"], check=True)
    return made


def write_stubs(source: Path, names: Iterable[str]) -> Path:
    """A source in C: each function ends the program with its name."""
    lines = [f'void {name}(void) {{ cudasim_unknown("{name}"); }}' for name in names]
    source.write_text("\n".join(["void cudasim_unknown(const char* name);", *lines, ""]))
    return source


def _functions(*files: Path | str) -> list[str]:
    command = ["nm", "--defined-only", "--format=posix", *map(str, files)]
    said = run(command, check=True).stdout
    words = [line.split() for line in said.splitlines()]
    found = [word[0].partition("@")[0] for word in words if word[1:2] in (["T"], ["W"])]
    return [name for name in found if re.match(r"(__)?(cuda|p?nccl|cu)[A-Z]", name)]
