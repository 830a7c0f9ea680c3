"""What a package holds, read once: its metadata, its files, and what their ELF headers say."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tarfile import TarError
from typing import Any
from zipfile import BadZipFile

from conda_package_streaming.package_streaming import (
    stream_conda_component,
    stream_conda_info,
    zstd,
)
from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.segments import InterpSegment

from ddlce import jsontext
from ddlce.errors import WorkError

UNREADABLE = (OSError, ValueError, BadZipFile, TarError, zstd.ZstdError)

#: Parts of the paths that only rattler-build's own folders have: the padded prefix, and the
#: folder above the work folder and the prefix of build tools. (Not `/build_env/`: pip has one.)
# Joined here, so that this file, packaged, does not find itself.
BUILD_MARKS = (b"_".join([b"placehold"] * 2), b"/" + b"rattler-build_")


@dataclass(frozen=True)
class Elf:
    """The dynamic section of an ELF file.

    Attributes:
        machine: as pyelftools names it, `EM_X86_64`.
        soname: or "".
        needed: sonames, in order.
        rpaths: the entries of DT_RPATH and DT_RUNPATH.
        inherited: True where they are DT_RPATH, which also serves what this file loads.
        glibc: the newest glibc symbol version it needs, or "".
        interpreter: the loader that a program names; "" for a library.
        page: the smallest alignment of a loaded segment, in bytes; 0 where none is loaded.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpaths: tuple[str, ...]
    inherited: bool
    glibc: str
    interpreter: str
    page: int = 0


@dataclass(frozen=True)
class File:
    """One file of the package's payload.

    Attributes:
        path: relative to the prefix.
        target: where a symbolic link leads, as written; None for a file.
        size, sha256: of the bytes; of a link, its target's length and "".
        mode: permission bits.
        text: no NUL byte in it.
        marks: forbidden texts that are in it.
        placeholder: whether the prefix that paths.json registers for it is in it.
        elf: for an ELF file.
    """

    path: str
    target: str | None
    size: int
    sha256: str
    mode: int
    text: bool = False
    marks: tuple[str, ...] = ()
    placeholder: bool = False
    elf: Elf | None = None

    @property
    def folder(self) -> PurePosixPath:
        """The folder of the file, relative to the prefix."""
        return PurePosixPath(self.path).parent


@dataclass(frozen=True)
class Facts:
    """All that the rules look at.

    Attributes:
        path: the package.
        info: contents of the JSON files in info/, by name without suffix.
        licenses: (name, size) of the files in info/licenses.
        paths: the entries of info/paths.json.
        files: the payload, by path.
    """

    path: Path
    info: dict[str, Any]
    licenses: tuple[tuple[str, int], ...]
    paths: tuple[dict[str, Any], ...]
    files: dict[str, File] = field(repr=False)

    @property
    def index(self) -> dict[str, Any]:
        """info/index.json."""
        found = self.info.get("index")
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        """The package's name."""
        return str(self.index.get("name", ""))

    @property
    def depends(self) -> tuple[str, ...]:
        """The names of what it depends on."""
        return tuple(str(spec).split()[0] for spec in self.index.get("depends", ()))


@dataclass(frozen=True)
class Info:
    """The part of a package that is read for every dependency, and to compare with the index.

    Attributes:
        path: the package.
        index: info/index.json.
        paths: what it installs, relative to the prefix.
    """

    path: Path
    index: dict[str, Any] = field(repr=False)
    paths: frozenset[str] = field(repr=False)

    @property
    def name(self) -> str:
        """The package's name."""
        return str(self.index["name"])

    @property
    def depends(self) -> tuple[str, ...]:
        """The names of what it depends on."""
        return tuple(str(spec).split()[0] for spec in self.index.get("depends", ()))


def read_facts(package: Path, forbidden: Sequence[str] = ()) -> Facts:
    """Read a whole package.

    Args:
        package: a .conda file.
        forbidden: texts (paths) to look for in every file.

    Raises:
        WorkError: it is no readable .conda file.
    """
    try:
        info, licenses = _read_info(package)
        entries = (info.get("paths") or {}).get("paths") or ()
        registered = {
            entry["_path"]: entry["prefix_placeholder"]
            for entry in entries
            if entry.get("prefix_placeholder")
        }
        files = {}
        with package.open("rb") as stream:
            for archive, member in stream_conda_component(package.name, stream, "pkg"):
                data = archive.extractfile(member) if member.isfile() else None
                prefix = registered.get(member.name)
                files[member.name] = (
                    _file(member.name, data.read(), member.mode, prefix, forbidden)
                    if data
                    else File(member.name, member.linkname, len(member.linkname), "", member.mode)
                )
    except UNREADABLE as error:
        raise WorkError(f"{package}: cannot be read: {error}", "build the package again") from error
    return Facts(package, info, tuple(licenses), tuple(entries), files)


def read_info(package: Path, python: str = "3") -> Info:
    """Read only what a dependent must know.

    Args:
        package: a .conda file.
        python: the minor version of the environment that it is asked about, "3.11".

    Raises:
        WorkError: it is no readable .conda file.
    """
    info = read_metadata(package)
    paths = {entry["_path"] for entry in info["paths"]["paths"]}
    noarch = (info.get("link") or {}).get("noarch") or {}
    if noarch.get("type") == "python":
        paths = {installed_path(path, python) for path in paths}
        # each entry point is `command = module:function`
        points = noarch.get("entry_points") or ()
        paths |= {f"bin/{point.partition('=')[0].strip()}" for point in points}
    return Info(package, info["index"], frozenset(paths))


def read_metadata(package: Path) -> dict[str, Any]:
    """The contents of the JSON files in info/ of a .conda file, by name without suffix.

    Raises:
        WorkError: it is no readable .conda file.
    """
    try:
        return _read_info(package)[0]
    except UNREADABLE as error:
        raise WorkError(f"{package}: cannot be read: {error}", "build the package again") from error


def installed_path(path: str, python: str) -> str:
    """Where a file of a noarch python package goes, in an environment with that python."""
    if path.startswith("site-packages/"):
        return f"lib/python{python}/{path}"
    return re.sub(r"^python-scripts/", "bin/", path)


def _read_info(package: Path) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    info: dict[str, Any] = {}
    licenses = []
    for archive, member in stream_conda_info(str(package)):
        path = PurePosixPath(member.name)
        if member.name.startswith("info/licenses/") and member.isfile():
            licenses.append((str(path.relative_to("info/licenses")), member.size))
        elif str(path.parent) == "info" and path.suffix == ".json":
            stream = archive.extractfile(member)
            info[path.stem] = jsontext.load(stream.read()) if stream else None
    return info, licenses


def _file(path: str, data: bytes, mode: int, prefix: str | None, forbidden: Sequence[str]) -> File:
    marks = [text for text in forbidden if text.encode() in data]
    rest = data.replace(prefix.encode(), b"") if prefix else data
    marks += [mark.decode() for mark in BUILD_MARKS if mark in rest]
    return File(
        path=path,
        target=None,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        mode=mode,
        text=b"\0" not in data,
        marks=tuple(marks),
        placeholder=prefix is not None and prefix.encode() in data,
        elf=read_elf(data) if data.startswith(b"\x7fELF") else None,
    )


def read_elf(data: bytes) -> Elf | None:
    """The dynamic facts of an ELF file; None for an object file or a broken one."""
    try:
        elf = ELFFile(io.BytesIO(data))
        machine = str(elf["e_machine"])
        if elf["e_type"] not in ("ET_DYN", "ET_EXEC"):
            return None
        soname, inherited = "", False
        needed: list[str] = []
        rpaths: list[str] = []
        versions: list[tuple[int, ...]] = []
        for section in elf.iter_sections():
            if isinstance(section, DynamicSection):
                tag: Any  # its attributes depend on its kind
                for tag in section.iter_tags():
                    kind = tag.entry.d_tag
                    if kind == "DT_NEEDED":
                        needed.append(tag.needed)
                    elif kind == "DT_SONAME":
                        soname = tag.soname
                    elif kind in ("DT_RPATH", "DT_RUNPATH"):
                        text = tag.rpath if kind == "DT_RPATH" else tag.runpath
                        rpaths += [entry for entry in text.split(":") if entry]
                        inherited = inherited or kind == "DT_RPATH"
            elif isinstance(section, GNUVerNeedSection):
                for _, wanted in section.iter_versions():
                    versions += [v for name in wanted if (v := glibc_version(name.name))]
        programs = [part for part in elf.iter_segments() if isinstance(part, InterpSegment)]
        interpreter = programs[0].get_interp_name() if programs else ""
        pages = [int(part["p_align"]) for part in elf.iter_segments("PT_LOAD")]
    except (ELFError, KeyError, AssertionError):
        return None
    newest = ".".join(map(str, max(versions))) if versions else ""
    return Elf(
        machine=machine,
        soname=soname,
        needed=tuple(needed),
        rpaths=tuple(rpaths),
        inherited=inherited,
        glibc=newest,
        interpreter=interpreter,
        page=min(pages, default=0),
    )


def glibc_version(symbol_version: str) -> tuple[int, ...] | None:
    """The glibc release that a symbol version came with; None for other libraries' versions.

    GLIBC_ABI_DT_RELR marks relocations that glibc understands since 2.36.
    """
    if symbol_version == "GLIBC_ABI_DT_RELR":
        return (2, 36)
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", symbol_version)
    return tuple(int(part) for part in match[1].split(".")) if match else None
