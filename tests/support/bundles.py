"""A small bundle of toy packages: its header, its channel and its checks are those of a real one.

Its Python is a file of a few bytes, so it installs nothing. That of a `working` one is a script: it
runs the tests' own Python, with this tree's ddlce, and installs in seconds.
"""

from __future__ import annotations

import importlib
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from ddlce.bundle.description import HEADER, Bundle
from ddlce.bundle.write import write_bundle
from ddlce.model.envlock import EnvLock
from ddlce.settings import Settings
from support import lockpair
from support.minichannel import Pkg, pack
from support.run import run

REPO = Path(__file__).parents[2]


def toys(subdir: str, *, working: bool = False) -> list[Pkg]:
    """Packages with the names that a bundle needs, and one more."""
    if working:
        script = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        python = {"bin/python3.11": script, "bin/python": "-> python3.11"}
        return [
            Pkg("python", "3.11.7", files={**python}, subdir=subdir),
            Pkg("ddlce", "1.0", ["python >=3.11", "backports.zstd"], {"share/x": "x\n"}),
            Pkg("backports.zstd", "1.0", ["python"], {**reader()}, subdir=subdir),
            Pkg("toy", files={"etc/toy": "toy\n"}, subdir=subdir),
        ]
    return [
        Pkg("python", "3.11.7", files={"bin/python3.11": "no interpreter\n"}, subdir=subdir),
        Pkg("ddlce", "1.0", ["python >=3.11", "backports.zstd"], noarch="python"),
        Pkg("backports.zstd", "1.0", ["python"], {"etc/x": "x\n"}, subdir=subdir),
        Pkg("toy", files={"etc/toy": "toy\n"}, subdir=subdir),
    ]


def reader() -> dict[str, Path]:
    """The files by which the first Python reads packages."""
    (folder,) = importlib.import_module("backports.zstd").__path__
    site = Path(folder).parents[1]
    files = (path for path in Path(folder).rglob("*") if path.suffix in (".py", ".so"))
    return {f"lib/python3.11/site-packages/{path.relative_to(site)}": path for path in files}


def toy_lock(
    channel: Path,
    *,
    platform: str = "linux-64",
    glibc: str = "2.17",
    without: str = "",
    working: bool = False,
) -> EnvLock:
    """Pack the toys into a channel and lock them."""
    locked = []
    for package in toys(platform, working=working):
        path = channel / ("noarch" if package.noarch else platform) / f"{package.stem}.conda"
        if not path.exists():
            pack(package, channel)
        if package.name != without:
            locked.append(lockpair.locked_package(package, path))
    fields = {"manifest": "0" * 64, "specs": ["toy"], "virtual_packages": {"__glibc": glibc}}
    return lockpair.lock(*locked, env="mini", platform=platform, **fields)


def toy_settings(folder: Path) -> Settings:
    """Settings of a tree that has the condarc template."""
    repo = folder / "repo"
    (repo / "channel").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(REPO / "channel" / "condarc.j2", repo / "channel" / "condarc.j2")
    return Settings(repo=repo, cache=folder / "cache", root=folder / "root")


def toy_bundle(folder: Path, *, platform: str = "linux-64", glibc: str = "2.17") -> Bundle:
    """Write a toy bundle into `folder/out`."""
    lock = toy_lock(folder / "channel", platform=platform, glibc=glibc)
    return write_bundle(toy_settings(folder), lock, folder / "channel", folder / "out")


def working_bundle(folder: Path, release: str = "2026.11") -> tuple[EnvLock, Path]:
    """Write a bundle that installs into `folder/out`; its lock, and the file."""
    lock = toy_lock(folder / "channel", working=True).model_copy(update={"release": release})
    made = write_bundle(toy_settings(folder), lock, folder / "channel", folder / "out")
    return lock, Path(made.path)


def channel_at(file: Path) -> int:
    """The byte at which a bundle's channel begins."""
    (first,) = re.findall(rb"first='(\d+)'", file.read_bytes()[:HEADER])
    return HEADER + int(first)


def run_bundle(
    file: str | Path,
    *options: str | Path,
    folder: Path,
    shell: str = "sh",
    user: int | None = None,
    caged: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `sh FILE OPTIONS` with only the system's programs, from the folder.

    Args:
        shell: the program that reads it.
        user: run as this user, without any privilege.
        caged: nothing of the machine can be changed but the folder and the file: a damaged script
            may do anything.
    """
    command = [shell, str(file), *map(str, options)]
    if caged:
        cage = ["bwrap", "--die-with-parent", "--unshare-all", "--ro-bind", "/", "/"]
        cage += ["--dev", "/dev", "--proc", "/proc", "--bind", str(folder), str(folder)]
        cage += ["--bind", str(file), str(file), "--chdir", str(folder)]
        command = [*cage, *command]
    if user is not None:
        command = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", *command]
    return run(
        command, env={"PATH": "/usr/bin:/bin", "HOME": str(folder)}, cwd=folder, errors="replace"
    )
