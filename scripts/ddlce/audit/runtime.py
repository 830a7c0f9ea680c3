"""Programs that bring their own C library: compilers and tools, which run on any machine.

Such a program lies in a folder `programs`, with libraries of its own. A start program runs it by
the loader of the package runtime_linux-64, which looks in both folders alone. Beside `programs`, a
compiler has what it links, which may be for another platform.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddlce.audit.facts import Facts
from ddlce.audit.model import Below, Finding
from ddlce.elf import Elf
from ddlce.platforms import PLATFORMS

INSIDE = "/programs/"
RUNTIME = "x86_64-conda-linux-gnu/runtime"


def own_runtime(facts: Facts, below: Below | None) -> Iterator[Finding]:
    """What such a program needs is beside it or in the runtime."""
    paths = _paths(facts, below)
    for file in facts.files.values():
        folders = _folders(file.path, paths)
        if folders and file.elf and below is not None:
            for soname in file.elf.needed:
                if not any(f"{folder}/{soname}" in paths for folder in folders):
                    places = " and ".join(folders)
                    yield Finding("runtime", file.path, f"needs {soname}, which is not in {places}")


def without_runtime(facts: Facts, below: Below | None) -> Facts:
    """The same, without the ELF headers of files that the other rules do not ask."""
    paths = _paths(facts, below)
    subdir = str(facts.index.get("subdir"))
    machine = PLATFORMS[subdir].elf if subdir in PLATFORMS else ""
    compilers = {f"{path.partition(INSIDE)[0]}/" for path in paths if INSIDE in path}

    def of_target(path: str, elf: Elf | None) -> bool:
        inside = any(path.startswith(compiler) for compiler in compilers)
        return inside and elf is not None and elf.machine != machine

    files = {
        path: replace(file, elf=None)
        if _folders(path, paths) or of_target(path, file.elf)
        else file
        for path, file in facts.files.items()
    }
    return replace(facts, files=files)


def _paths(facts: Facts, below: Below | None) -> set[str]:
    return facts.files.keys() | (below.paths.keys() if below else set())


def _folders(path: str, paths: set[str]) -> list[str]:
    """Where the loader of such a file looks; nowhere for other files."""
    if f"{RUNTIME}/libc.so.6" not in paths:
        return []
    if path.startswith(f"{RUNTIME}/"):
        return [RUNTIME]
    above, found, _ = path.partition(INSIDE)
    return [f"{above}{INSIDE}".rstrip("/"), RUNTIME] if found else []
