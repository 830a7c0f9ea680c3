"""What an overlay's `pip install` says at its end: libraries that its packages need and nobody has.

`python -m ddlce.overlay.after_pip PREFIX`, by the release's Python. A wheel for CUDA is found at
once on a release for CPUs, not when a program imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ddlce.env.records import read_records
from ddlce.overlay.installed import installed
from ddlce.overlay.loading import failing_imports, missing_libraries
from ddlce.overlay.model import read_overlay


def main(words: Sequence[str]) -> int:
    """Look at the overlay; 1 where a package without its libraries cannot be imported, else 0.

    Some packages load a library only where there is a GPU for it: those are warned of.
    """
    prefix = Path(words[0])
    overlay = read_overlay(prefix)
    if overlay is None or not Path(overlay.release).is_dir():
        return 0  # it was moved or is broken: `ddlce env check` says how
    missing = list(
        missing_libraries(prefix, installed(prefix), read_records(Path(overlay.release)))
    )
    lines = [line for _, line in missing]
    failing = list(failing_imports(prefix, list(dict.fromkeys(one for one, _ in missing))))
    for line in [*lines, *failing]:
        print(f"{'error' if failing else 'warning'}: {line}", file=sys.stderr)
    if failing:
        print(
            "hint:  pip has installed it all the same; remove it with pip uninstall, and look for "
            f"a build that fits {overlay.env}",
            file=sys.stderr,
        )
    return 1 if failing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
