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
class Distribution:
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

    @property
    def title(self) -> str:
        """Name and version, for messages."""
        return f"{self.name} {self.version}"


def installed(prefix: Path) -> list[Distribution]:
    """All distributions in an overlay, sorted by name; broken metadata are passed over."""
    distributions = []
    for where in sorted(prefix.glob("lib/python3.*/site-packages/*.dist-info")):
        dist = PathDistribution(where)
        name = dist.metadata["Name"] if dist.metadata else None
        if name:
            files = tuple(str(file) for file in dist.files or ())
            needs = tuple(dist.requires or ())
            distributions.append(Distribution(name, dist.version, where, files, needs))
    return distributions


def unmet(
    distributions: Iterable[Distribution], release: Mapping[str, str], python: str
) -> list[str]:
    """One line for each requirement that neither the overlay nor the release meets.

    Args:
        distributions: those of the overlay, which come before the release's.
        release: canonical name → version of what the release has.
        python: the release's Python, as `3.11.2`: requirements may depend on it.
    """
    mine = list(distributions)
    versions = dict(release)
    versions.update(
        (canonicalize_name(distribution.name), distribution.version) for distribution in mine
    )
    minor = ".".join(python.split(".")[:2])
    about = {"python_version": minor, "python_full_version": python, "extra": ""}
    problems = []
    for distribution in mine:
        for text in distribution.needs:
            try:
                need = Requirement(text)
            except InvalidRequirement:
                continue
            if need.marker and not need.marker.evaluate(about):
                continue
            version = versions.get(canonicalize_name(need.name))
            if version is None:
                problems.append(f"{distribution.title} needs {need}, which is not there")
            elif not _allows(need, version):
                problems.append(f"{distribution.title} needs {need}, and {need.name} is {version}")
    return problems


def _allows(need: Requirement, version: str) -> bool:
    try:
        return need.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False
