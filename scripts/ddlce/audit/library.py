"""Audit of a user's own library or program: whether it runs wherever a release runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddlce.audit.model import DRIVERS, GLIBC, Finding
from ddlce.audit.symbols import younger
from ddlce.elf import MAGIC, Elf, parse_elf
from ddlce.errors import InputError
from ddlce.words import some


@dataclass(frozen=True)
class Release:
    """What a file is held against.

    Attributes:
        prefix: the environment.
        floor: the oldest glibc that it runs on, "2.28".
        libraries: soname → where the environment has it, relative to the prefix.
    """

    prefix: Path
    floor: str
    libraries: Mapping[str, str]


def audit_file(path: Path, release: Release) -> list[Finding]:
    """All that keeps a shared library or program from running where the release runs.

    Raises:
        InputError: it is neither.
    """
    elf = _read(path)
    python = _read(release.prefix / "bin" / "python")
    if elf.machine != python.machine:
        kinds = [each.machine.removeprefix("EM_") for each in (elf, python)]
        wrong = "is for {}, and the release is for {}".format(*kinds)
        return [Finding("machine", str(path), wrong)]
    return [*_glibc_above(path, elf, release), *_libraries(path, elf, release)]


def _read(path: Path) -> Elf:
    try:
        with path.open("rb") as stream:
            elf = parse_elf(stream) if stream.read(len(MAGIC)) == MAGIC else None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: cannot be read: {error}", "name a shared library or a program"
        ) from error
    if elf is None:
        raise InputError(
            f"{path}: neither a shared library nor a program", "name what was linked, not objects"
        )
    return elf


def _glibc_above(path: Path, elf: Elf, release: Release) -> Iterator[Finding]:
    for wanted in younger(elf, release.floor):
        yield Finding(
            "glibc-above",
            str(path),
            f"needs {wanted}, and the release runs on glibc {release.floor}: compile with "
            "x86_64-conda-linux-gnu-gcc or -g++",
        )


def _libraries(path: Path, elf: Elf, release: Release) -> Iterator[Finding]:
    """Each library that it needs is found on every node, with the versions that it needs."""
    for soname in elf.needed:
        if soname in GLIBC | DRIVERS:
            continue
        there = release.libraries.get(soname)
        found = _by_rpath(path, elf, soname, release.prefix)
        if found is None and there is not None:
            # A library in a folder of its own, as PyTorch's, is loaded by its package before.
            found = release.prefix / there
            if Path(there).parent == Path("lib"):
                yield Finding(
                    "rpath",
                    str(path),
                    f"does not say where {soname} is, so the machine's is taken where there is "
                    f"one: link with -Wl,-rpath,{release.prefix / 'lib'}",
                )
        if found is None:
            yield Finding(
                "library",
                str(path),
                f"needs {soname}, which neither the release nor a folder beside the file has: put "
                "it there, and link with -Wl,-rpath,'$ORIGIN'",
            )
            continue
        wanted = elf.requires.get(soname, frozenset()) - _read(found).versions
        if wanted:
            yield Finding(
                "version",
                str(path),
                f"needs {some(wanted)}, which {found} has not: it was linked with a newer one",
            )


def _by_rpath(path: Path, elf: Elf, soname: str, prefix: Path) -> Path | None:
    """Where an RPATH leads that is there on each node: beside the file, or to the release."""
    folder = path.resolve().parent
    for entry in elf.rpaths:
        if not entry.startswith(("$ORIGIN", "${ORIGIN}", str(prefix))):
            continue
        place = entry.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(folder))
        if (found := Path(place, soname)).is_file():
            return found
    return None
