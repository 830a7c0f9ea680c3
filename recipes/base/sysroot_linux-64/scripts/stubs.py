"""Stub libraries: for linking only, made from symbol tables. They hold names and no code."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from symbols import DATA, Symbol, numbers

SECTIONS = {
    "FUNC": (".text", "@function"),
    "OBJECT": (".data", "@object"),
    "TLS": ('.section .tdata,"awT",@progbits', "@tls_object"),
}


def limited(symbols: Iterable[Symbol], floor: str) -> list[Symbol]:
    """The symbols that a library of the release `floor` had.

    Where the default version of a name came later, the newest that is left was the default then.
    """
    by_name: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in symbols:
        by_name[symbol.name].append(symbol)
    found = []
    for entries in by_name.values():
        kept = sorted(
            (e for e in entries if numbers(e.version) <= numbers(floor)),
            key=lambda e: numbers(e.version),
        )
        if kept and any(e.default for e in entries) and not any(e.default for e in kept):
            kept[-1] = replace(kept[-1], default=True)
        found += kept
    return sorted(found)


def assembler(symbols: Iterable[Symbol]) -> str:
    """A stub library's source. Data of one address stay one object, functions need no place."""
    places: dict[tuple[str, int], list[Symbol]] = defaultdict(list)
    lines: list[str] = []
    for symbol in symbols:
        if symbol.kind in DATA:
            places[symbol.kind, symbol.address].append(symbol)
        else:
            lines += [".text", *_label(symbol), ".zero 1"]
    for (kind, _), aliases in sorted(places.items()):
        lines += [SECTIONS[kind][0], ".balign 32"]
        lines += [line for symbol in aliases for line in _label(symbol)]
        lines.append(f".zero {max(1, *(symbol.size for symbol in aliases))}")
    return "\n".join([*lines, '.section .note.GNU-stack,"",@progbits', ""])


def _label(symbol: Symbol) -> list[str]:
    local = f"__stub_{symbol.name}_{symbol.version.replace('.', '_')}"
    sign = "@@" if symbol.default else "@"
    return [
        f".{'weak' if symbol.weak else 'globl'} {local}",
        f".type {local}, {SECTIONS[symbol.kind][1]}",
        f".size {local}, {symbol.size}",
        f".symver {local}, {symbol.name}{sign}{symbol.version}, remove",
        f"{local}:",
    ]


def version_script(symbols: Iterable[Symbol]) -> str:
    """The versions, oldest first. `local: *` would hide what `.symver` exports."""
    names = sorted({s.version for s in symbols}, key=lambda v: (numbers(v), v))
    return "".join(f"{name} {{ }};\n" for name in names)


def make_stub(symbols: Sequence[Symbol], soname: str, folder: Path, compiler: str) -> None:
    """Write the stub library `soname` into a folder.

    Args:
        symbols: what it exports.
        soname: its name.
        folder: where it is written.
        compiler: a C compiler for the platform.
    """
    with tempfile.TemporaryDirectory() as name:
        source, versions = Path(name, "stub.s"), Path(name, "stub.map")
        source.write_text(assembler(symbols))
        versions.write_text(version_script(symbols))
        options = [f"-soname,{soname}", f"--version-script,{versions}", "--build-id=none"]
        options += ["-z,noexecstack", "--hash-style=gnu"]
        command = [compiler, "-shared", "-nostdlib", *(f"-Wl,{option}" for option in options)]
        # A stub is never loaded: no path of the build, which the linker would take from here.
        machine = {key: value for key, value in os.environ.items() if key != "LD_RUN_PATH"}
        subprocess.run([*command, "-o", folder / soname, source], check=True, env=machine)
