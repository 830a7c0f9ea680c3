"""Makes the C library of a root file system offer no symbol version above a release of glibc.

The versions stay, under other names: `GLIBC_2.29` is `GLIBX_2.29` in the library and in the root's
own programs that need it. To programs from elsewhere it is missing, as where it never was.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from packaging.version import Version

from ddlce.elf import MAGIC, glibc_version


def pretend(root: Path, true: str, floor: str) -> list[Path]:
    """Change every ELF file below `root`.

    Args:
        true: the release of its glibc.
        floor: the release that it is to be like.

    Returns:
        The files that were changed.
    """
    changed = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not path.is_file() or not is_elf(path):
            continue
        before = path.read_bytes()
        after = renamed(before, path, Version(floor))
        if re.fullmatch(r"(libc|ld)-[\d.]+\.so", path.name):
            # What gnu_get_libc_version and confstr say.
            said = rb"(?<=[\0 ])" + re.escape(true).encode() + rb"(?=\0)"
            after = re.sub(said, floor.encode(), after)
        if after != before:
            path.write_bytes(after)
            changed.append(path)
    return changed


def is_elf(path: Path) -> bool:
    """Whether a file begins as one."""
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def renamed(data: bytes, path: Path, floor: Version) -> bytes:
    """The bytes of an ELF file whose younger versions have other names."""
    found = bytearray(data)
    with path.open("rb") as stream:
        elf = ELFFile(stream)
        little = "<" if elf.little_endian else ">"
        for hash_place, name_place, name in _versions(elf):
            if (needed := glibc_version(name)) and needed > floor:
                other = name.replace("GLIBC", "GLIBX").encode()
                found[name_place : name_place + len(other)] = other
                struct.pack_into(f"{little}I", found, hash_place, elf_hash(other))
    return bytes(found)


def elf_hash(name: bytes) -> int:
    """The hash of a symbol or version (System V ABI, chapter 5)."""
    value = 0
    for byte in name:
        value = (value << 4) + byte
        value = (value ^ ((value & 0xF0000000) >> 24)) & 0x0FFFFFFF
    return value


def _versions(elf: ELFFile) -> Iterator[tuple[int, int, str]]:
    """Of each version that a file defines or needs: the places of its hash and its name, the name.

    An entry that defines is `vd_version flags ndx cnt hash aux next`, 2 bytes each before the hash;
    one that needs is `vna_hash flags other name next`.
    """
    for section in elf.iter_sections():
        if isinstance(section, GNUVerDefSection | GNUVerNeedSection):
            strings = section.stringtable["sh_offset"]
            place = section["sh_offset"]
            for entry, parts in section.iter_versions():
                if isinstance(section, GNUVerDefSection):
                    first = next(iter(parts))
                    yield place + 8, strings + first["vda_name"], first.name
                    place += entry["vd_next"]
                else:
                    inner = place + entry["vn_aux"]
                    for part in parts:
                        yield inner, strings + part["vna_name"], part.name
                        inner += part["vna_next"]
                    place += entry["vn_next"]
