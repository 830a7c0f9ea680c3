"""`ddlce` with all that it needs as one zip archive that Python runs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import json
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ddlce.dist.start import ABOUT, SITE, Application
from ddlce.errors import MachineError
from ddlce.files import write_atomic

MAIN = f"""\
import sys
sys.path.insert(0, sys.argv[0] + "/{SITE}")
from ddlce.dist.start import main
main(sys.argv[0])
"""

#: pip's notes on how it installed a distribution; they differ from one machine to the next.
NOTES = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def write_zipapp(wheel: Path, folder: Path) -> Path:
    """Write `ddlce.pyz` into a folder, from its wheel and what this Python has of its needs.

    Raises:
        MachineError: one of them is not there, or the folder cannot be written.
    """
    with zipfile.ZipFile(wheel) as packed:
        members = {f"{SITE}/{name}": packed.read(name) for name in packed.namelist()}
        requires = _requires(packed)
    for distribution in closure(requires):
        for file in distribution.files or ():
            path = Path(str(file.locate()))
            if ".." in file.parts or "__pycache__" in file.parts or path.name in NOTES:
                continue
            members[f"{SITE}/{file}"] = path.read_bytes()
    members = {name: data for name, data in members.items() if not name.endswith("/")}
    digest = hashlib.sha256()
    for name, data in sorted(members.items()):
        digest.update(f"{name}\0{len(data)}\0".encode() + data)
    about = Application(
        python=f"{sys.version_info.major}.{sys.version_info.minor}", digest=digest.hexdigest()
    )
    members |= {"__main__.py": MAIN.encode(), ABOUT: json.dumps(about.__dict__).encode()}
    path = folder / "ddlce.pyz"
    write_atomic(path, b"#!/usr/bin/env python3\n" + _zipped(members), 0o755)
    return path


def _requires(wheel: zipfile.ZipFile) -> list[str]:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    said = wheel.read(name).decode().partition("\n\n")[0].splitlines()
    return [line.partition(": ")[2] for line in said if line.startswith("Requires-Dist: ")]


def closure(requires: list[str]) -> Iterator[importlib.metadata.Distribution]:
    """The installed distributions that these requirements lead to, without optional ones.

    Raises:
        MachineError: one is not installed.
    """
    seen, waiting = set[str](), list(requires)
    while waiting:
        wanted = Requirement(waiting.pop())
        if wanted.marker and not any(
            wanted.marker.evaluate({"extra": extra}) for extra in ("", *wanted.extras)
        ):
            continue
        name = canonicalize_name(wanted.name)
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError as error:
            raise MachineError(
                f"ddlce needs {name}, which is not installed here", "run: make bootstrap"
            ) from error
        waiting += found.requires or []
        yield found


def _zipped(members: dict[str, bytes]) -> bytes:
    """A zip archive without times and owners."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for name, data in sorted(members.items()):
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            packed.writestr(info, data)
    return stream.getvalue()
