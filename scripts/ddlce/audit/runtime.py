"""Programs that bring their own C library: compilers, which run on any machine and are for none.

A folder `runtime` with a loader and libc.so.6 beside a folder `programs`, as gcc_impl_linux-64 has
them: a program there is started by that loader, which looks in `runtime` alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ddlce.audit.facts import Facts
from ddlce.audit.model import Below, Finding

PROGRAMS, RUNTIME = "programs", "runtime"


def own_runtime(facts: Facts, below: Below | None) -> Iterator[Finding]:
    """What such a program needs is in its runtime, of this package or of what it depends on."""
    paths = facts.files.keys() | (below.paths.keys() if below else set())
    for file in facts.files.values():
        runtime = _runtime(file.path, paths)
        if runtime is not None and file.elf and below is not None:
            for soname in file.elf.needed:
                if f"{runtime}/{soname}" not in paths:
                    yield Finding("runtime", file.path, f"needs {soname}, which {runtime} has not")


def without_runtime(facts: Facts, below: Below | None) -> Facts:
    """The same, without the ELF headers of files that the other rules do not ask."""
    paths = facts.files.keys() | (below.paths.keys() if below else set())
    files = {
        path: file if _runtime(path, paths) is None else replace(file, elf=None)
        for path, file in facts.files.items()
    }
    return replace(facts, files=files)


def _runtime(path: str, paths: set[str]) -> str | None:
    """The folder of the C library that a file runs on, where it is such a folder."""
    folder, _, _ = path.rpartition("/")
    above, _, name = folder.rpartition("/")
    runtime = f"{above}/{RUNTIME}"
    if name not in (PROGRAMS, RUNTIME) or f"{runtime}/libc.so.6" not in paths:
        return None
    return runtime
