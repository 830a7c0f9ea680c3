"""What an ELF file says of itself: the one place that reads them, with pyelftools."""

from __future__ import annotations

import io
import re
import struct
from array import array
from dataclasses import dataclass, field
from typing import IO, Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.enums import ENUM_E_MACHINE
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.segments import InterpSegment
from packaging.version import Version

#: Every ELF file begins with it.
MAGIC = b"\x7fELF"

#: An entry of the symbol table: name, binding and type, visibility, section, value, size.
SYMBOL = struct.Struct("<IBBHQQ")

#: The part of a symbol's version that is the version's number; the bit above hides it.
VERSION = 0x7FFF

#: The binding of a symbol that may stay undefined.
WEAK = 2


class BrokenElfError(ValueError):
    """The file is no ELF file, or contradicts itself."""


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
        wants: version of glibc, `GLIBC_2.14` → the symbols that it needs of it.
        undefined: the symbols without a version that it needs, but for weak ones.
        exports: the symbols that it defines for others.
        offers: version of glibc → the symbols that it defines of it.
        requires: soname → the versions that it needs of that library, `GLIBCXX_3.4.30`.
        versions: those that it defines.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpaths: tuple[str, ...]
    inherited: bool
    glibc: str
    interpreter: str
    page: int = 0
    wants: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    undefined: frozenset[str] = field(default=frozenset(), repr=False)
    exports: frozenset[str] = field(default=frozenset(), repr=False)
    offers: dict[str, tuple[str, ...]] = field(default_factory=dict, repr=False)
    requires: dict[str, frozenset[str]] = field(default_factory=dict, repr=False)
    versions: frozenset[str] = frozenset()


def read_elf(data: bytes) -> Elf | None:
    """The dynamic facts of an ELF file; None for an object file or a broken one."""
    try:
        return parse_elf(io.BytesIO(data))
    except BrokenElfError:
        return None


def parse_elf(stream: IO[bytes]) -> Elf | None:
    """The dynamic facts of an ELF file; None for an object file.

    Args:
        stream: the file; pyelftools seeks in it.

    Raises:
        BrokenElfError: it cannot be read as ELF.
    """
    try:
        elf = ELFFile(stream)
        return _read(elf) if elf["e_type"] in ("ET_DYN", "ET_EXEC") else None
    except (ELFError, KeyError, AssertionError) as error:
        raise BrokenElfError(str(error) or type(error).__name__) from error


def _read(elf: ELFFile) -> Elf:
    soname, inherited = "", False
    needed: list[str] = []
    rpaths: list[str] = []
    versions: list[Version] = []
    wanted_versions: dict[int, str] = {}
    requires: dict[str, frozenset[str]] = {}
    own_versions: dict[int, str] = {}
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
            for library, wanted in section.iter_versions():
                names = {name["vna_other"] & VERSION: name.name for name in wanted}
                wanted_versions |= names
                requires[str(library.name)] = frozenset(names.values())
        elif isinstance(section, GNUVerDefSection):
            for version, own in section.iter_versions():
                own_versions[version["vd_ndx"]] = next(iter(own)).name
    versions = [v for name in wanted_versions.values() if (v := glibc_version(name))]
    programs = [part for part in elf.iter_segments() if isinstance(part, InterpSegment)]
    pages = [int(part["p_align"]) for part in elf.iter_segments("PT_LOAD")]
    return Elf(
        machine=str(elf["e_machine"]),
        soname=soname,
        needed=tuple(needed),
        rpaths=tuple(rpaths),
        inherited=inherited,
        glibc=str(max(versions)) if versions else "",
        interpreter=programs[0].get_interp_name() if programs else "",
        page=min(pages, default=0),
        requires=requires,
        versions=frozenset(own_versions.values()),
        **_symbols(elf, wanted_versions, own_versions),
    )


def _symbols(elf: ELFFile, versions: dict[int, str], own: dict[int, str]) -> dict[str, Any]:
    """What `Elf` says of symbols; by hand, as some libraries have 200000.

    Args:
        versions: index → version that it needs.
        own: index → version that it defines.
    """
    table, numbers = elf.get_section_by_name(".dynsym"), elf.get_section_by_name(".gnu.version")
    wants: dict[str, list[str]] = {name: [] for name in versions.values() if glibc_version(name)}
    offers: dict[str, list[str]] = {name: [] for name in own.values() if glibc_version(name)}
    undefined, exports = set(), set()
    if table is not None and elf.elfclass == 64 and elf.little_endian:
        names = elf.get_section(table["sh_link"]).data()
        rows = list(SYMBOL.iter_unpack(table.data()))
        kinds = array("H", numbers.data() if numbers is not None else bytes(2 * len(rows)))
        for (place, info, _, section, _, _), kind in zip(rows, kinds, strict=True):
            name = names[place : names.index(b"\0", place)].decode("latin-1")
            if section:
                exports.add(name)
                if (version := own.get(kind & VERSION)) in offers:
                    offers[version].append(name)
            elif version := versions.get(kind & VERSION):
                wants.setdefault(version, []).append(name)
            elif name and info >> 4 != WEAK:
                undefined.add(name)
    return {
        "wants": {name: tuple(sorted(wants[name])) for name in wants if glibc_version(name)},
        "undefined": frozenset(undefined),
        "exports": frozenset(exports),
        "offers": {name: tuple(sorted(offers[name])) for name in offers},
    }


def glibc_version(symbol_version: str) -> Version | None:
    """The glibc release that a symbol version came with; None for other libraries' versions.

    GLIBC_ABI_DT_RELR marks relocations that glibc understands since 2.36.
    """
    if symbol_version == "GLIBC_ABI_DT_RELR":
        return Version("2.36")
    match = re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", symbol_version)
    return Version(match[1]) if match else None


def machine_number(name: str) -> int:
    """`e_machine` as a number: 62 for `EM_X86_64`."""
    return int(ENUM_E_MACHINE[name])
