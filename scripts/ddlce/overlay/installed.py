"""The distributions in an overlay, and whether what they need is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PathDistribution
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion


@dataclass(frozen=True)
class Installed:
    """One distribution in an overlay.

    Attributes:
        name: as it calls itself.
        version: its own.
        where: its folder of metadata.
        files: the paths that it recorded, relative to site-packages.
        needs: its requirements, as it wrote them.
    """

    name: str
    version: str
    where: Path
    files: tuple[str, ...]
    needs: tuple[str, ...]


def installed(prefix: Path) -> list[Installed]:
    """All distributions in an overlay, sorted by name; broken metadata are passed over."""
    found = []
    for where in sorted(prefix.glob("lib/python3.*/site-packages/*.dist-info")):
        dist = PathDistribution(where)
        name = dist.metadata["Name"] if dist.metadata else None
        if name:
            files = tuple(str(file) for file in dist.files or ())
            needs = tuple(dist.requires or ())
            found.append(Installed(name, dist.version, where, files, needs))
    return found


def unmet(distributions: Iterable[Installed], release: Mapping[str, str], python: str) -> list[str]:
    """One line for each requirement that neither the overlay nor the release meets.

    Args:
        distributions: those of the overlay, which come before the release's.
        release: canonical name → version of what the release has.
        python: the release's Python, as `3.11.2`: requirements may depend on it.
    """
    mine = list(distributions)
    there = dict(release)
    there.update((canonicalize_name(each.name), each.version) for each in mine)
    minor = ".".join(python.split(".")[:2])
    about = {"python_version": minor, "python_full_version": python, "extra": ""}
    problems = []
    for each in mine:
        for text in each.needs:
            try:
                need = Requirement(text)
            except InvalidRequirement:
                continue
            if need.marker and not need.marker.evaluate(about):
                continue
            version = there.get(canonicalize_name(need.name))
            if version is None:
                problems.append(f"{each.name} {each.version} needs {need}, which is not there")
            elif not _allows(need, version):
                problems.append(
                    f"{each.name} {each.version} needs {need}, and {need.name} is {version}"
                )
    return problems


def _allows(need: Requirement, version: str) -> bool:
    try:
        return need.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False
