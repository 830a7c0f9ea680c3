"""`python -m ddlce.dist DIR`: write the wheel and the zipapp of this tree's `ddlce`."""

from __future__ import annotations

import sys
from pathlib import Path

from ddlce.cli.app import run_designed
from ddlce.cli.common import out
from ddlce.dist.wheel import write_wheel
from ddlce.dist.zipapp import write_zipapp
from ddlce.errors import InputError
from ddlce.settings import load_settings


def main() -> None:
    """Write both, and say where they are."""
    if len(sys.argv) != 2:
        raise InputError("usage: python -m ddlce.dist DIR", "name the folder for the two files")
    folder = Path(sys.argv[1]).absolute()
    wheel = write_wheel(load_settings().tree, folder)
    for path in (wheel, write_zipapp(wheel, folder)):
        out.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB", markup=False)


if __name__ == "__main__":
    run_designed(main)
