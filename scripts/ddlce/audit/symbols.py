"""What is asked of the symbols that a package's files leave to others."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

from packaging.version import Version

from ddlce.audit.facts import Facts, read_exports
from ddlce.audit.model import GLIBC, Below, Finding
from ddlce.elf import Elf, glibc_version, read_elf
from ddlce.settings import OWN_GLIBC
from ddlce.words import some

#: Libraries of glibc that were apart before its release 2.34, whose libc.so.6 has their functions.
APART = frozenset({"libanl.so.1", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libutil.so.1"})
JOINED = "2.34"
#: The release that had a few of the threads' functions before.
EARLY = "2.32"

#: package → what it exports, of those that were audited or looked into. Packages are large: who
#: audits many begins with those below, and reads none twice.
_read: dict[Path, frozenset[str]] = {}


def glibc_above(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """No file needs a glibc above the floor of the distribution, and the package says so."""
    if not facts.floor or facts.name == OWN_GLIBC:
        return
    hint = f"above {facts.floor}, the floor; compile with $CC, whose C library is the sysroot's"
    for file in facts.files.values():
        for wanted in younger(file.elf, facts.floor) if file.elf else ():
            yield Finding("glibc-above", file.path, f"needs {wanted}, {hint}")
    for spec in facts.index.get("depends", ()):
        match = re.match(r"__glibc >=(\d+(?:\.\d+)*)", spec)
        if match and Version(match[1]) > Version(facts.floor):
            declared = f"declares glibc {match[1]}, above {facts.floor}, the floor"
            yield Finding("glibc-above", "info/index.json", declared)


def younger(elf: Elf, floor: str) -> Iterator[str]:
    """What a file needs of each release of glibc above `floor`: `memcpy of GLIBC_2.36`."""
    for version, names in sorted(elf.wants.items()):
        if (came := glibc_version(version)) and came > Version(floor):
            yield f"{some(names)} of {version}"


def undefined(facts: Facts, below: Below | None) -> Iterator[Finding]:
    """Each symbol without a version that is not weak is in a library that is installed beside it.

    A linker takes a shared library with such a symbol; the program that calls it ends. A function
    that the sysroot's headers do not declare, as it is younger than the floor, leaves one. What
    libc.so.6 had at the floor is there in every process. What was in a library apart then is there
    where the file names one of these, and in Python, which names them for its extensions.
    """
    if below is None or facts.name == OWN_GLIBC:
        return
    elves = {file.path: file.elf for file in facts.files.values() if file.elf}
    own = _read[facts.path] = frozenset().union(*(elf.exports for elf in elves.values()))
    everywhere = anywhere = own
    if not any(name == OWN_GLIBC for name in below.paths.values()):
        everywhere, anywhere = (own | of(facts.floor) for of in (_of_libc, _of_glibc))
    # What else a library of the machine has is not known here, nor what an absent one would have.
    known = GLIBC | {path.rpartition("/")[2] for path in (*facts.files, *below.paths)}
    wanted = {
        path: elf.undefined - (anywhere if _has_all(path, elf) else everywhere)
        for path, elf in elves.items()
        if known.issuperset(elf.needed)
    }
    left = frozenset().union(*wanted.values())
    for package in below.packages:
        if not left:
            return
        left -= _exports(package)
    for path, names in sorted(wanted.items()):
        if missing := names & left:
            yield Finding(
                "undefined",
                path,
                f"needs {some(missing)}, without a version, which is in no library beside it"
                + ("; link it with -pthread or -ldl" if missing <= _of_glibc(facts.floor) else ""),
            )


def _has_all(path: str, elf: Elf) -> bool:
    """Whether all of glibc is in the file's process."""
    return bool(APART.intersection(elf.needed)) or "site-packages/" in path


def _of_libc(floor: str) -> frozenset[str]:
    """Those of `_of_glibc` that no library apart had at its release `floor`."""
    joined = not floor or Version(floor) >= Version(JOINED)
    return _of_glibc(floor) if joined else _of_glibc(floor) - _moved()


@functools.cache
def _moved() -> frozenset[str]:
    """Functions that came to libc.so.6 from a library apart: it has them of that release, too.

    A few of threads came some releases before.
    """
    elf = read_elf((_folder() / "libc.so.6").read_bytes())
    offers = elf.offers if elf else {}
    early = {n for n in offers.get(f"GLIBC_{EARLY}", ()) if n.startswith("pthread_")}
    return frozenset(offers.get(f"GLIBC_{JOINED}", ())) | early


@functools.cache
def _of_glibc(floor: str) -> frozenset[str]:
    """The functions of glibc at its release `floor`, told by a newer one, this machine's."""
    symbols: set[str] = set()
    for path in map(_folder().joinpath, GLIBC):
        elf = read_elf(path.read_bytes()) if path.is_file() else None
        for version, names in elf.offers.items() if elf else ():
            came = glibc_version(version)
            if not floor or (came and came <= Version(floor)):
                symbols.update(names)
    return frozenset(symbols)


def _folder() -> Path:
    """Where this machine's glibc is."""
    maps = Path("/proc/self/maps").read_text()
    return next(Path(line.split()[-1]).parent for line in maps.splitlines() if "/libc." in line)


def _exports(package: Path) -> frozenset[str]:
    if package not in _read:
        _read[package] = read_exports(package)
    return _read[package]
