"""Install the wheel in $SRC_DIR into $PREFIX: the build script of every package of NVIDIA's.

NVIDIA's wheels hold a prefix, `nvidia/NAME/{bin,include,lib,nvvm}`. The files go to the same places
of the environment, as they are: their licence lets unmodified files be passed on. Run by the build
machine's python3, whatever its version, with the standard library only.
"""

from __future__ import annotations

import argparse
import fnmatch
import os
import re
import stat
import sys
import zipfile
from pathlib import Path, PurePosixPath

#: What runs programs, and what builds them.
RUNTIME = re.compile(r"lib/[^/]+\.so(\.[0-9.]+)?")

#: Folders of a toolkit that belong to an environment. `.metadata` is about NVIDIA's own build.
FOLDERS = ("bin", "include", "lib", "nvvm")


def main() -> None:
    """Read the options and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the target's Python, e.g. 3.11")
    parser.add_argument(
        "--part",
        choices=("all", "runtime", "development"),
        required=True,
        help="runtime: libraries and the wheel's metadata; development: all else, and links",
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="files that are left out"
    )
    parser.add_argument(
        "--libraries-in-place",
        action="store_true",
        help="libraries stay in site-packages, where the wheel has them",
    )
    options = parser.parse_args()
    source, prefix = Path(os.environ["SRC_DIR"]), Path(os.environ["PREFIX"])
    wheels = sorted(source.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"error: {source} holds {len(wheels)} wheels, expected one")
    site = PurePosixPath("lib", f"python{options.python}", "site-packages")
    written = 0
    with zipfile.ZipFile(wheels[0]) as wheel:
        for member in sorted(wheel.infolist(), key=lambda m: m.filename):
            if member.is_dir():
                continue
            target = place(member.filename, site, options.libraries_in_place)
            if is_licence(member.filename):
                write(source, PurePosixPath(member.filename), wheel.read(member), 0o644)
            if target is None or not is_part(target, options.part):
                continue
            if any(fnmatch.fnmatchcase(str(target), glob) for glob in options.exclude):
                continue
            # Some programs may be run by their owner alone; a zip of Windows has no modes.
            executable = (member.external_attr >> 16) & 0o111
            write(prefix, target, wheel.read(member), 0o755 if executable else 0o644)
            written += 1
        if options.part != "runtime":
            written += link_libraries(prefix, wheel, site, options.libraries_in_place)
    if not written:
        sys.exit(f"error: {wheels[0].name} has nothing for the part {options.part}")


def place(name: str, site: PurePosixPath, in_place: bool) -> PurePosixPath | None:
    """Where a member belongs below the prefix; None for what is left out."""
    parts = PurePosixPath(name).parts
    if re.fullmatch(r"[^/]+\.dist-info", parts[0]):
        # The builder gives every package its own INSTALLER and RECORD.
        return None if parts[-1] in ("RECORD", "INSTALLER") else site / name
    if len(parts) > 3 and parts[0] == "nvidia" and parts[2] in FOLDERS:
        inner = PurePosixPath(*parts[2:])
        return site / name if in_place and RUNTIME.fullmatch(str(inner)) else inner
    if parts[0] == "nvidia" and (len(parts) == 3 or parts[2] == ".metadata"):
        return None  # a licence's text beside the folders, or notes on the build
    sys.exit(f"error: the wheel has a file in no folder of a toolkit: {name}")


def is_part(target: PurePosixPath, part: str) -> bool:
    """Whether a file of the prefix belongs to the part."""
    runtime = bool(RUNTIME.fullmatch(str(target))) or target.parts[1].startswith("python")
    return part == "all" or runtime == (part == "runtime")


def is_licence(name: str) -> bool:
    """Whether the member is a licence's text."""
    return bool(re.search(r"(^|/)(licen[cs]e|notice|copying)[^/]*$", name, re.IGNORECASE))


def link_libraries(
    prefix: Path, wheel: zipfile.ZipFile, site: PurePosixPath, in_place: bool
) -> int:
    """`libNAME.so`, which linkers look for, to `libNAME.so.N`; returns how many.

    The library itself may be in the package that this one depends on.
    """
    found = 0
    for name in sorted(wheel.namelist()):
        match = re.fullmatch(r"nvidia/[^/]+/lib/(lib[^/]+\.so)\.\d+", name)
        if match:
            link = prefix / "lib" / match[1]
            link.parent.mkdir(parents=True, exist_ok=True)
            library = place(name, site, in_place)
            link.symlink_to(os.path.relpath(str(library), "lib"))
            found += 1
    return found


def write(base: Path, inner: PurePosixPath, content: bytes, mode: int) -> None:
    """Write a file with the given permissions, never outside `base`."""
    if inner.is_absolute() or ".." in inner.parts:
        sys.exit(f"error: the wheel has a file outside its folder: {inner}")
    target = base / inner
    if base.resolve() not in target.parent.resolve().parents and target.parent != base:
        sys.exit(f"error: {inner} would be written outside {base}, through a link")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(stat.S_IFREG | mode)


if __name__ == "__main__":
    main()
