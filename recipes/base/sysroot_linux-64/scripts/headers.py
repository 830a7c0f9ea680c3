"""Takes out of glibc's headers what is younger than the floor, so that no program uses it."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from symbols import Symbol, numbers

#: Folders of the kernel's headers, which declare no functions of the library.
KERNEL = {
    "asm",
    "asm-generic",
    "drm",
    "linux",
    "misc",
    "mtd",
    "rdma",
    "scsi",
    "sound",
    "video",
    "xen",
}

#: Declarations whose arguments changed with a release: header, pattern, release. The older form is
#: in no header, so that nothing uses either.
CHANGED = (
    ("bits/mathcalls.h", r"(?m)^__MATHDECL_1 \(int, totalorder(?:mag)?,[^;]*;", "GLIBC_2.31"),
)


def younger(symbols: Iterable[Symbol], floor: str) -> set[str]:
    """The functions of which every version came after the floor."""
    versions: dict[str, set[tuple[int, ...]]] = defaultdict(set)
    for symbol in symbols:
        versions[symbol.name].add(numbers(symbol.version))
    return {name for name, found in versions.items() if min(found) > numbers(floor)}


def limit(include: Path, symbols: Iterable[Symbol], floor: str) -> None:
    """Edit the headers: no younger declaration, and the floor as the library's version.

    Args:
        include: the folder of the headers.
        symbols: those of all libraries, of the headers' own release.
        floor: the release that programs shall run on, "2.28".

    Raises:
        SystemExit: a younger function is in no header, so its declaration cannot be found.
    """
    missing = younger(symbols, floor)
    for path in sorted(include.rglob("*.h")):
        if missing and path.relative_to(include).parts[0] not in KERNEL:
            missing -= _hide(path, set(missing), floor)
    if missing:
        sys.exit(
            f"sysroot_linux-64: {', '.join(sorted(missing))}: newer than glibc {floor}, but no "
            "header declares it in the form that scripts/headers.py knows; add the form there"
        )
    for name, pattern, since in CHANGED:
        if numbers(since) > numbers(floor):
            _replace(include / name, pattern, f"/* changed by {since} */")
    minor = floor.partition(".")[2]
    _replace(include / "features.h", r"(#define\s+__GLIBC_MINOR__\s+)\d+", rf"\g<1>{minor}")


def _hide(path: Path, names: set[str], floor: str) -> set[str]:
    """Take the declarations of the names out of one header; those that were there."""
    text = path.read_bytes().decode("latin-1")
    found = set()
    for name in names:
        if name in text:
            # From `extern` to its `;`, and not over another one.
            pattern = rf"(?m)^extern [^;{{}}#]*?\b{name}\s*\([^;{{}}]*;"
            text, count = re.subn(pattern, f"/* {name}: after {floor} */", text)
            found |= {name} if count else set()
    if found:
        path.write_bytes(text.encode("latin-1"))
    return found


def _replace(path: Path, pattern: str, words: str) -> None:
    text, count = re.subn(pattern, words, path.read_bytes().decode("latin-1"))
    if not count:
        sys.exit(
            f"sysroot_linux-64: {path} has no {pattern}: scripts/headers.py is for other headers"
        )
    path.write_bytes(text.encode("latin-1"))
