"""Wheels for overlays, pip in them, and shells that activate them."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.minienv import packages_alone
from support.run import run


def wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str | bytes], needs: str = ""
) -> Path:
    """A wheel with these files."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
        info = f"{name}-{version}.dist-info"
        head = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", head + (f"Requires-Dist: {needs}\n" if needs else ""))
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        names = [*files, f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]
        archive.writestr(f"{info}/RECORD", "".join(f"{each},,\n" for each in names))
    return path


def pip(overlay: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    """The mini release has no pip: that of the tests does it."""
    packages = overlay.with_name(f"{overlay.name}-pip")
    if not packages.exists():
        packages_alone(packages, "pip")
    return run(
        [overlay / "bin" / "python", "-m", "pip", "install", "--no-index", *words],
        env=os.environ | {"PYTHONPATH": str(packages)},
    )


def run_bash(script: str, shell: str = "bash", **env: str) -> subprocess.CompletedProcess[str]:
    """A script with nothing set but what is given."""
    path = shutil.which(shell)
    if not path:
        pytest.skip(f"{shell} is not installed")
    options = {"bash": ["--noprofile", "--norc"], "zsh": ["-f"]}.get(shell, [])
    return run(
        [path, *options, "-u", "-c", script],
        env={"HOME": "/home/nobody", "PATH": "/usr/bin:/bin", **env},
    )
