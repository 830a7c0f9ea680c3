"""Horovod's locked source, unpacked, patched, and compiled file by file."""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from ddlce.model.source import SourcesLock
from ddlce.settings import load_settings
from ddlce.sources.store import SourceStore
from support.pip import pip_prefix
from support.run import run

RECIPE = Path(__file__).parents[2] / "recipes" / "horovod"


def unpack(folder: Path) -> Path:
    """The locked source without our patches, in a folder below `folder`."""
    settings = load_settings()
    lock = SourcesLock.load(settings.sources_lock)
    (source,) = [s for s in lock.sources if s.file == "horovod-0.28.1.tar.gz"]
    store = SourceStore(settings.sources)
    store.verify(source)
    with tarfile.open(store.path(source)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "horovod-0.28.1"


def apply_patches(source: Path) -> None:
    """Apply the recipe's patches by number and add its files; AssertionError names a bad one."""
    for patch in sorted((RECIPE / "patches").glob("*.patch")):
        done = run(["patch", "--strip=1", "--force", "--fuzz=0", f"--input={patch}"], cwd=source)
        assert done.returncode == 0, f"{patch.name}: {done.stdout}{done.stderr}"
    shutil.copytree(RECIPE / "src", source, dirs_exist_ok=True)


def include_options(prefix: Path, source: Path) -> list[str]:
    """Our headers and MPI's, CUDA's, NCCL's, and those that Horovod brings along.

    Raises:
        Unavailable: CUDA's wheels cannot be had.
    """
    (cuda,) = pip_prefix("cuda").glob("lib/python3*/site-packages/nvidia")
    third_party = source / "third_party"
    parts = ("cuda_runtime", "cuda_nvcc", "cuda_cccl", "nccl")
    folders = [
        prefix / "include",
        *(cuda / part / "include" for part in parts),
        *sorted(third_party.glob("*/include")),
        *sorted(third_party.glob("boost/*/include")),
        third_party / "eigen",
    ]
    return [word for folder in folders for word in ("-isystem", str(folder))]


def compile_file(
    source: Path, options: list[str], file: str, made: Path
) -> subprocess.CompletedProcess[str]:
    """Compile one of Horovod's files with `options` in a bare environment."""
    return run(
        ["g++", "-std=c++17", "-fPIC", "-w", *options, "-c", file, "-o", str(made)],
        cwd=source,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
    )
