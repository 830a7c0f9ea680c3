"""Let the programs and libraries of a Debian package work in a prefix: a part of install_deb.py.

Run by the build machine's python3 with the standard library only, as that is. The builder's own
Python and its packages would make the result depend on them.
"""

from __future__ import annotations

import fnmatch
import posixpath
import struct
import subprocess
import sys
from pathlib import Path
from typing import List  # noqa: UP035  # python3 may be older than 3.9

#: Of the ELF format: kinds of files, segments and sections, bindings of symbols.
ET_EXEC, ET_DYN, PT_DYNAMIC, PT_INTERP, SHT_DYNSYM, GLOBAL, WEAK = 2, 3, 2, 3, 11, 1, 2

#: Where the package glibc has its libraries and the loader, in the prefix.
GLIBC = "lib/glibc"

#: POWER's kernels have pages of 64 KiB: what patchelf adds must begin on one.
PAGE = "65536"


def relocate(path: Path, prefix: Path, patchelf: str, without: List[str]) -> None:  # noqa: UP006
    """Let a program or library find its libraries in the prefix, and not ask for some.

    It is RPATH, as in what we compile: that of a program, which leads to glibc too, then also
    serves all that it loads (ld.so(8)).
    """
    content = bytearray(path.read_bytes())
    segments = segment_types(content)
    if PT_DYNAMIC not in segments:
        return
    rpath = [p.rstrip("/") for p in run([patchelf, "--print-rpath", str(path)]).split(":")]
    rpath = [p for p in rpath if p.startswith("$ORIGIN")]
    rpath.append(from_origin(prefix / "lib", path))
    loader = []
    if PT_INTERP in segments:
        rpath.append(from_origin(prefix / GLIBC, path))
        name = posixpath.basename(run([patchelf, "--print-interpreter", str(path)]))
        loader = ["--set-interpreter", str(prefix / GLIBC / name)]
    gone = []
    for option in without:
        soname, _, glob = option.partition("=")
        if soname.encode() + b"\0" in content:
            weaken(content, glob)
            gone += ["--remove-needed", soname]
    if gone:
        path.write_bytes(content)
        run([patchelf, "--page-size", PAGE, *gone, str(path)])
    rpath = ["--force-rpath", "--set-rpath", ":".join(dict.fromkeys(rpath))]
    run([patchelf, "--page-size", PAGE, *rpath, *loader, str(path)])


def from_origin(folder: Path, path: Path) -> str:
    """The entry of an RPATH of `path` that leads to a folder."""
    relative = posixpath.relpath(str(folder), str(path.parent))
    return "$ORIGIN" if relative == "." else f"$ORIGIN/{relative}"


def segment_types(content: bytearray) -> List[int]:  # noqa: UP006
    """The types of the segments of a program or library; none of any other file."""
    if content[:6] != b"\x7fELF\x02\x01" or read("<H", content, 16) not in (ET_EXEC, ET_DYN):
        return []
    table, size, count = read("<Q", content, 32), read("<H", content, 54), read("<H", content, 56)
    return [read("<I", content, table + size * n) for n in range(count)]


def weaken(content: bytearray, glob: str) -> None:
    """Let undefined symbols stay undefined: the loader then gives them the address 0."""
    table, size, count = read("<Q", content, 40), read("<H", content, 58), read("<H", content, 60)
    for number in range(count):
        header = table + size * number
        if read("<I", content, header + 4) != SHT_DYNSYM:
            continue
        strings = table + size * read("<I", content, header + 40)  # its sh_link
        names = read("<Q", content, strings + 24)
        start, length = read("<Q", content, header + 24), read("<Q", content, header + 32)
        for symbol in range(start, start + length, 24):
            begin = names + read("<I", content, symbol)
            name = content[begin : content.index(0, begin)].decode()
            binding, kind = divmod(content[symbol + 4], 16)
            undefined = read("<H", content, symbol + 6) == 0
            if undefined and binding == GLOBAL and fnmatch.fnmatchcase(name, glob):
                content[symbol + 4] = WEAK * 16 + kind


def read(form: str, content: bytearray, offset: int) -> int:
    """One number of an ELF file."""
    return int(struct.unpack_from(form, content, offset)[0])


def run(command: List[str]) -> str:  # noqa: UP006
    """What a tool prints; its failure is ours."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(command)}: {done.stdout.strip()}")
    return done.stdout.strip()
