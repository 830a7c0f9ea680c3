"""The versions that a release has, from its own records, and the constraints that pip gets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from ddlce.env.records import Record

_INFO = re.compile(r"site-packages/([^/]+)-([^-/]+)\.dist-info/METADATA$")
_MODULE = re.compile(r"site-packages/(.+?)(?:/__init__)?(?:\.cpython-[^/]*|\.abi3)?\.(?:py|so)$")
_PROGRAM = re.compile(r"bin/([^/]+)$")


@dataclass(frozen=True)
class Pin:
    """One package of a release under the name that pip knows it by.

    Attributes:
        name: canonical, as pip compares names.
        version: the release's.
        package: the conda package that has it.
    """

    name: str
    version: str
    package: str

    @property
    def line(self) -> str:
        """The line in a file of constraints."""
        return f"{self.name}=={self.version}"


def release_pins(records: Iterable[Record]) -> dict[str, Pin]:
    """All packages of a release, by canonical name.

    A package with Python distributions is pinned by theirs (`torch`, not `pytorch`), any other by
    its own name: `pip install mpich` must not bring another MPI. Versions that Python's rules do
    not allow, as `1.1.1w`, are of no Python package, and left out.
    """
    pins: dict[str, Pin] = {}
    for record in records:
        package, version = str(record.data["name"]), str(record.data["version"])
        paths = (entry["_path"] for entry in record.entries)
        found = [(m[1], m[2]) for path in paths if (m := _INFO.search(path))]
        for name, number in found or [(package, version)]:
            try:
                Version(number)
            except InvalidVersion:
                continue
            pin = Pin(canonicalize_name(name), number, package)
            pins[pin.name] = pin
    return dict(sorted(pins.items()))


def constraints(release: str, pins: Mapping[str, Pin]) -> str:
    """The text of the file of constraints.

    Args:
        release: how the first line calls the release.
        pins: see `release_pins`.
    """
    head = f"# The packages of {release}: pip keeps to them. Made by `ddlce env overlay`.\n"
    return head + "".join(f"{pin.line}\n" for pin in pins.values())


def read_constraints(text: str) -> dict[str, Pin]:
    """The pins that `constraints` has written; the package is called by its own name."""
    lines = [line for line in text.splitlines() if "==" in line and not line.startswith("#")]
    pairs = (line.split("==", 1) for line in lines)
    return {name: Pin(name, version, name) for name, version in pairs}


def module_of(path: str) -> str | None:
    """The dotted name of the module in a file below site-packages; None for other files."""
    found = _MODULE.search(path)
    return found[1].replace("/", ".") if found else None


def release_modules(records: Iterable[Record]) -> dict[str, str]:
    """Dotted name of each module of a release → the package that has it."""
    return {
        module: str(record.data["name"])
        for record in records
        for entry in record.entries
        if (module := module_of(entry["_path"]))
    }


def release_programs(records: Iterable[Record]) -> dict[str, str]:
    """Name of each program of a release → the package that has it."""
    return {
        found[1]: str(record.data["name"])
        for record in records
        for entry in record.entries
        if (found := _PROGRAM.fullmatch(entry["_path"]))
    }
