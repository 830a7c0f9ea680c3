"""Whether what is in an overlay can be loaded: its modules, and the libraries that these need.

pip compares versions only. A wheel that is linked to another build of a framework, as for CUDA, is
installed without a word, and fails when it is imported.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

from ddlce.audit.model import DRIVERS
from ddlce.elf import MAGIC, read_elf
from ddlce.env.records import Record
from ddlce.overlay.installed import Distribution
from ddlce.programs import ask

_LIBRARY = re.compile(r"\.so(\.[\w.]+)?$")
_MODULE = re.compile(r"([A-Za-z]\w*)(?:/__init__\.py|\.py|(?:\.cpython-[^/]*|\.abi3)?\.so)")

#: Of one import, a framework's first one on a shared file system included.
SECONDS = 300


def missing_libraries(
    prefix: Path, mine: Iterable[Distribution], records: Iterable[Record]
) -> Iterator[tuple[Distribution, str]]:
    """One line for each library that a file of the overlay needs and nobody has; whose file.

    Args:
        mine: its distributions.
        records: those of its release.
    """
    sonames = {PurePosixPath(path).name for record in records for path in _paths(record)}
    libraries = [(distribution, path) for distribution in mine for path in _libraries(distribution)]
    sonames |= {path.name for _, path in libraries} | _of_the_machine() | DRIVERS
    for distribution, path in libraries:
        data = path.read_bytes()
        elf = read_elf(data) if data.startswith(MAGIC) else None
        for soname in elf.needed if elf else ():
            if soname not in sonames:
                line = (
                    f"{distribution.title}: {path.relative_to(prefix)} needs {soname}, which "
                    "neither the overlay nor the release nor this machine has"
                )
                yield distribution, line


def failing_imports(prefix: Path, mine: Sequence[Distribution]) -> Iterator[str]:
    """One line for each module at the top of a distribution that cannot be imported.

    It runs code of the overlay: call it for the owner of the overlay only.
    """
    python = str(prefix / "bin" / "python")

    def attempt(distribution: Distribution, module: str) -> str:
        try:
            # As its user does, with nothing of the current folder.
            ran = ask([python, "-P", "-c", f"import {module}"], timeout=SECONDS)
        except OSError as error:
            return f"{distribution.title}: import {module}: {error}"
        if not ran.returncode:
            return ""
        said = ran.stderr.strip().splitlines() or [f"exit code {ran.returncode}"]
        return f"{distribution.title}: import {module} fails: {said[-1]}"

    pairs = [(distribution, module) for distribution in mine for module in modules(distribution)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        yield from filter(None, pool.map(lambda pair: attempt(*pair), pairs))


def modules(each: Distribution) -> list[str]:
    """The modules at the top of a distribution, those for its own use left out."""
    return sorted({found[1] for file in each.files if (found := _MODULE.fullmatch(file))})


def _paths(record: Record) -> Iterator[str]:
    return (entry["_path"] for entry in record.entries)


def _libraries(each: Distribution) -> Iterator[Path]:
    """The shared libraries of a distribution that are there."""
    for file in each.files:
        path = each.where.parent / file
        if _LIBRARY.search(file) and path.is_file():
            yield path


def _of_the_machine() -> set[str]:
    """The sonames that the machine's loader finds."""
    try:
        told = ask(["/sbin/ldconfig", "-p"]).stdout
    except OSError:
        return set()
    return {line.split()[0] for line in told.splitlines() if "=>" in line}
