"""Conda's order of versions, and what fits a spec."""

from __future__ import annotations

from rattler import MatchSpec, PackageRecord, Version
from rattler.package import BuildString


def version_key(version: str) -> Version:
    """A sort key: `1.9` before `1.10`, `2.0rc1` before `2.0`."""
    return Version(version)


def fits(spec: str, name: str, version: str) -> bool:
    """Whether a package's version is one that a match spec, as `pytorch 2.13.*`, asks for.

    Args:
        spec: without a build string.
    """
    record = PackageRecord(name, version, BuildString("0"), 0, "noarch")
    return bool(MatchSpec(spec).matches(record))
