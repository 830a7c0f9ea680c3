"""ReFrame as a program, beside the other tools of the tests."""

from __future__ import annotations

import sys
import venv
from pathlib import Path

from ddlce.files import sha256_file
from support.tools import once, pip

REQUIREMENTS = Path(__file__).with_name("reframe.txt")


def reframe() -> list[str | Path]:
    """The first words of its command; the test is skipped where it cannot be installed."""

    def make(folder: Path) -> None:
        venv.create(folder, with_pip=True)
        options = ("--require-hashes", "--only-binary=:all:", "-r", REQUIREMENTS)
        pip(folder / "bin" / "python", "install", *options)

    digest = sha256_file(REQUIREMENTS)[:8]
    folder = once(f"reframe-{sys.version_info.minor}-{digest}", make) / "bin"
    return [folder / "python", folder / "reframe"]
