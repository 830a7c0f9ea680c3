"""ReFrame as a program, beside the other tools of the tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from ddlce.files import locked, sha256_file
from support.modulesystems import UNPACKED

REQUIREMENTS = Path(__file__).with_name("reframe.txt")


def reframe() -> Path:
    """The program, installed once; or skip with the reason."""
    folder = UNPACKED / f"reframe-{sys.version_info.minor}-{sha256_file(REQUIREMENTS)[:8]}"
    with locked(UNPACKED / ".lock"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            venv.create(folder, with_pip=True)
            done = subprocess.run(
                [
                    *(folder / "bin/python", "-m", "pip", "install", "--quiet"),
                    *("--require-hashes", "--only-binary=:all:", "-r", REQUIREMENTS),
                ],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                pytest.skip(f"ReFrame cannot be installed ({done.stderr[-200:]})")
            (folder / "complete").touch()
    return folder / "bin" / "reframe"
