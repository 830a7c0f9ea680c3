"""Install the wheel in $SRC_DIR into $PREFIX: the build script of CUDA 12's packages.

CUDA 12's wheels are as CUDA 13's, which install_nvidia.py installs, but for two things. They have
one folder for each wheel, `nvidia/cublas/lib`, and libraries look for each other there: so where a
library goes to the environment's lib, that folder is a link to it. And they make Python packages of
the folders, by a file `__init__.py` in each, which is left out.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import sys
import zipfile
from pathlib import Path, PurePosixPath

from install_nvidia import RUNTIME, is_licence, is_part, link_libraries, place, write


def main() -> None:
    """Read the options and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the target's Python, e.g. 3.11")
    parser.add_argument("--part", choices=("all", "runtime", "development"), required=True)
    parser.add_argument("--exclude", action="append", default=[], metavar="GLOB")
    parser.add_argument("--libraries-in-place", action="store_true")
    options = parser.parse_args()
    source, prefix = Path(os.environ["SRC_DIR"]), Path(os.environ["PREFIX"])
    wheels = sorted(source.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"error: {source} holds {len(wheels)} wheels, expected one")
    site = PurePosixPath("lib", f"python{options.python}", "site-packages")
    with zipfile.ZipFile(wheels[0]) as wheel:
        written = install(wheel, source, prefix, site, options)
        if options.part != "runtime":
            written += link_libraries(prefix, wheel, site, options.libraries_in_place)
        if options.part != "development" and not options.libraries_in_place:
            link_folders(prefix, wheel, site)
    if not written:
        sys.exit(f"error: {wheels[0].name} has nothing for the part {options.part}")


def install(
    wheel: zipfile.ZipFile,
    source: Path,
    prefix: Path,
    site: PurePosixPath,
    options: argparse.Namespace,
) -> int:
    """Write the part's files to the prefix, and licences to the source; returns how many."""
    written = 0
    for member in sorted(wheel.infolist(), key=lambda m: m.filename):
        if member.is_dir() or re.fullmatch(r"nvidia/(.*/)?__init__\.py", member.filename):
            continue
        target = place(member.filename, site, options.libraries_in_place)
        if is_licence(member.filename):
            write(source, PurePosixPath(member.filename), wheel.read(member), 0o644)
        if target is None or not is_part(target, options.part):
            continue
        if any(fnmatch.fnmatchcase(str(target), glob) for glob in options.exclude):
            continue
        executable = (member.external_attr >> 16) & 0o111
        write(prefix, target, wheel.read(member), 0o755 if executable else 0o644)
        written += 1
    return written


def link_folders(prefix: Path, wheel: zipfile.ZipFile, site: PurePosixPath) -> None:
    """`site-packages/nvidia/NAME/lib`, where libraries look for the wheel's, to the prefix's lib."""
    parts = [PurePosixPath(name).parts for name in wheel.namelist()]
    for folder in sorted({p[1] for p in parts if RUNTIME.fullmatch("/".join(p[2:]))}):
        link = prefix / site / "nvidia" / folder / "lib"
        link.parent.mkdir(parents=True)
        link.symlink_to(os.path.relpath("lib", site / "nvidia" / folder))


if __name__ == "__main__":
    main()
