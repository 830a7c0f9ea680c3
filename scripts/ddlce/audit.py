"""Audits of built packages: what a package must not hold, and must say of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import conda_package_streaming.package_streaming as streaming


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a package.

    Attributes:
        rule: the rule's id.
        path: the file inside the package.
        message: what is wrong and what to do.
    """

    rule: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.rule} {self.path}: {self.message}"


def audit_package(package: Path, forbidden: Sequence[str] = ()) -> list[Finding]:
    """All findings on one package.

    Args:
        package: a .conda file.
        forbidden: paths that no file may hold: the folders in which it was built.
    """
    return [*build_paths(package, forbidden)]


def build_paths(package: Path, forbidden: Sequence[str]) -> list[Finding]:
    """A build folder that is left in a file works on no other machine."""
    found = []
    for tar, member in streaming.stream_conda_component(package.name, package.open("rb"), "pkg"):
        stream = tar.extractfile(member) if member.isfile() else None
        data = stream.read() if stream else member.linkname.encode()
        found += [
            Finding("build-path", member.name, f"holds the build folder {path}")
            for path in forbidden
            if path.encode() in data
        ]
    return found
