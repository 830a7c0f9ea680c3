"""Audits of built packages and of a channel: what they must hold, and say of themselves."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from ddlce.audit.channel import audit_index, clobbered, indexed, unknown_dependencies
from ddlce.audit.facts import Facts, Info, read_facts, read_info
from ddlce.audit.model import Below, Finding
from ddlce.audit.rules import RULES
from ddlce.audit.runtime import own_runtime, without_runtime
from ddlce.platforms import PLATFORMS

__all__ = [
    "Finding",
    "audit_facts",
    "audit_index",
    "audit_package",
    "clobbered",
    "closure",
    "indexed",
    "read_channel",
    "unknown_dependencies",
]


def audit_package(
    package: Path,
    forbidden: Sequence[str] = (),
    channel: Path | None = None,
    floor: str = "",
) -> list[Finding]:
    """All findings on one package.

    Args:
        package: a .conda file.
        forbidden: paths that no file may hold: the folders in which it was built.
        channel: a channel folder that holds what the package depends on; without it, linked
            libraries are not looked for in dependencies.
        floor: the newest glibc that the package may need, "2.28"; "" for any.

    Raises:
        WorkError: the package, or one below it, cannot be read.
    """
    facts = replace(read_facts(package, forbidden), floor=floor)
    if channel is None:
        return audit_facts(facts, None)
    subdir = package.parent.name
    # A channel may hold several platforms; a compiled package is installed beside its own.
    folders = [channel / name for name in (subdir, "noarch")] if subdir in PLATFORMS else [channel]
    return audit_facts(facts, closure(facts, read_channel(folders)))


def audit_facts(facts: Facts, below: Below | None) -> list[Finding]:
    """All findings on a package that was read."""
    found = list(own_runtime(facts, below))
    rest = without_runtime(facts, below)
    return found + [finding for rule in RULES for finding in rule(rest, below)]


def read_channel(folders: Iterable[Path]) -> dict[str, list[Info]]:
    """Names and paths of every package that a client of the channels can choose, by name.

    Args:
        folders: channels, or subdirs of channels.
    """
    packages = [
        package
        for folder in folders
        for subdir in [folder, *sorted(path for path in folder.glob("*") if path.is_dir())]
        for package in indexed(subdir)
    ]
    python = _python_of(packages)
    found: dict[str, list[Info]] = {}
    for package in packages:
        info = read_info(package, python)
        found.setdefault(info.name, []).append(info)
    return found


def _python_of(packages: Iterable[Path]) -> str:
    """The minor version of the python among packages, by file name; "3" where there is none."""
    for package in packages:
        if match := re.match(r"python-(\d+\.\d+)\.", package.name):
            return match[1]
    return "3"


def closure(facts: Facts | Info, known: dict[str, list[Info]]) -> Below:
    """What is installed beside a package, by the names in `depends`, all builds of a name."""
    paths: dict[str, str] = {}
    packages: list[Path] = []
    todo, seen = list(facts.depends), {facts.name}
    while todo:
        name = todo.pop(0)
        if name in seen:
            continue
        seen.add(name)
        for info in known.get(name, ()):
            paths |= dict.fromkeys(info.paths, name)
            packages.append(info.path)
            todo += info.depends
    return Below(paths, frozenset(facts.depends), tuple(packages))
