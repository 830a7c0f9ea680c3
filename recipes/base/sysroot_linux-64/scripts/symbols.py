"""The symbol table of a shared library as text: what a stub library is made from.

One line for each symbol with a version, sorted: name, `@@` (default) or `@`, version, type and
binding. Data also have their address and size: a linker copies data into programs, and names of one
address must stay one object.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: Types in `readelf`'s words whose place and size matter to who links with them.
DATA = ("OBJECT", "TLS")

#: Versions of glibc that only its own libraries may use.
PRIVATE = "GLIBC_PRIVATE"


@dataclass(frozen=True, order=True)
class Symbol:
    """One version of one symbol.

    Attributes:
        name: without its version.
        version: its version node, `GLIBC_2.2.5`.
        default: whether what is linked now gets this version.
        kind: FUNC, OBJECT or TLS.
        weak: whether its binding is weak.
        address, size: of data; 0 for functions.
    """

    name: str
    version: str
    default: bool
    kind: str
    weak: bool
    address: int = 0
    size: int = 0

    def __str__(self) -> str:
        sign, bind = "@@" if self.default else "@", "WEAK" if self.weak else "GLOBAL"
        place = f" {self.address:x} {self.size}" if self.kind in DATA else ""
        return f"{self.name}{sign}{self.version} {self.kind} {bind}{place}"


def parse(line: str) -> Symbol:
    """The symbol of one line of a table."""
    full, kind, bind, *place = line.split()
    name, sign, version = re.split(r"(@@?)", full, maxsplit=1)
    address, size = (int(place[0], 16), int(place[1])) if place else (0, 0)
    return Symbol(name, version, sign == "@@", kind, bind == "WEAK", address, size)


def read_table(path: Path) -> list[Symbol]:
    """The symbols of a table that `collect.py` wrote."""
    return [parse(line) for line in path.read_text().splitlines()]


def read_library(path: Path) -> list[Symbol]:
    """The symbols that a shared library exports with a version, sorted; private ones left out."""
    said = subprocess.run(
        ["readelf", "--dyn-syms", "-W", path], capture_output=True, text=True, check=True
    ).stdout
    found = set()
    for line in said.splitlines():
        words = line.split()
        if len(words) < 8 or not words[0].rstrip(":").isdigit() or "@" not in words[7]:
            continue
        value, size, kind, bind, section = (words[i] for i in (1, 2, 3, 4, 6))
        name, sign, version = re.split(r"(@@?)", words[7], maxsplit=1)
        if section in ("UND", "ABS") or version == PRIVATE:
            continue
        data = kind in DATA
        found.add(
            Symbol(
                *(name, version, sign == "@@", kind if data else "FUNC", bind == "WEAK"),
                *((int(value, 16), int(size, 0)) if data else (0, 0)),
            )
        )
    return sorted(found)


def numbers(version: str) -> tuple[int, ...]:
    """A version to be compared: (2, 2, 5) of `GLIBC_2.2.5`."""
    return tuple(int(part) for part in re.findall(r"\d+", version))
