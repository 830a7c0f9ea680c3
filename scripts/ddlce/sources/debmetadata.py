"""What a Debian binary package says of itself, and what its compiled files need and offer."""

from __future__ import annotations

import re
import tarfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement
from packaging.version import Version

from ddlce.elf import MAGIC, Elf, read_elf
from ddlce.errors import SourceError
from ddlce.model.source import DebMetadata, WheelMetadata
from ddlce.sources.debfile import deb_member
from ddlce.sources.wheelfile import GLIBC, homepage_of, import_names, of_an_extra

#: Where Debian's Python packages are.
DIST_PACKAGES = PurePosixPath("usr/lib/python3/dist-packages")


def read_deb(path: Path) -> DebMetadata:
    """Read everything that a recipe needs from a Debian binary package.

    Raises:
        SourceError: not a Debian package, or its metadata is unreadable; names the file.
    """
    with deb_member(path, "control") as tar:
        control = Parser().parsestr(_text(tar, "control") or "")
    with deb_member(path, "data") as tar:
        try:
            return _read(tar, control.get("Description", ""), control.get("Homepage", ""))
        except (InvalidRequirement, KeyError) as error:
            raise SourceError(f"{path}: its Python metadata is unreadable: {error}") from error


def _read(tar: tarfile.TarFile, description: str, homepage: str) -> DebMetadata:
    names: list[str] = []
    sonames: set[str] = set()
    own: set[str] = set()
    elfs: list[Elf] = []
    metadata = ""
    for member in tar:
        name = member.name.removeprefix("./")
        if member.isdir():
            continue
        names.append(name)
        path = PurePosixPath(name)
        if path.name in ("METADATA", "PKG-INFO") and path.parents[1] == DIST_PACKAGES:
            metadata = _text(tar, name) or ""
        if member.isfile() and (elf := _elf(tar, member)):
            elfs.append(elf)
            own |= {elf.soname, path.name}
            # What is among Python's modules serves them alone.
            if elf.soname.startswith("lib") and DIST_PACKAGES not in path.parents:
                sonames.add(elf.soname)
    floors = [elf.glibc for elf in elfs if elf.glibc]
    needed = {soname for elf in elfs for soname in elf.needed} - own
    return DebMetadata(
        summary=description.partition("\n")[0].strip(),
        homepage=homepage,
        sonames=sorted(sonames),
        needed=sorted(soname for soname in needed if not GLIBC.match(soname)),
        glibc=max(floors, key=Version, default=""),
        python=_python(metadata, names) if metadata else None,
    )


def _python(metadata: str, names: list[str]) -> WheelMetadata:
    raw, _ = parse_email(metadata)
    inside = [PurePosixPath(n).relative_to(DIST_PACKAGES) for n in names if _is_python(n)]
    return WheelMetadata(
        name=raw["name"],
        version=raw["version"],
        tags=[],
        pure=False,
        requires_python=raw.get("requires_python", ""),
        requires_dist=[r for r in raw.get("requires_dist", []) if not of_an_extra(r)],
        homepage=homepage_of(raw),
        imports=import_names([str(path) for path in inside]),
    )


def _is_python(name: str) -> bool:
    return DIST_PACKAGES in PurePosixPath(name).parents and not re.search(r"\.egg-info/", name)


def _elf(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Elf | None:
    stream = tar.extractfile(member)
    if stream is None or stream.read(len(MAGIC)) != MAGIC:
        return None
    stream.seek(0)
    return read_elf(stream.read())


def _text(tar: tarfile.TarFile, name: str) -> str | None:
    for known in (f"./{name}", name):
        try:
            stream = tar.extractfile(known)
        except KeyError:
            continue
        return stream.read().decode() if stream else None
    return None
