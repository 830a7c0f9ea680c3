"""What a wheel's metadata does not say, and its entry must."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ddlce.model.source import WheelMetadata
from ddlce.wheels.manifest import WheelEntry


@dataclass(frozen=True)
class Gap:
    """One thing that is known neither of the wheel nor of its entry.

    Attributes:
        field: the entry's field that fills it.
        message: what is wrong, naming the wheel.
        hint: what to do.
    """

    field: str
    message: str
    hint: str


def find_gaps(entry: WheelEntry, wheel: WheelMetadata) -> Iterator[Gap]:
    """What the entry must still say before the wheel makes a package."""
    named = f"{wheel.name} {wheel.version}"
    if not (entry.license or wheel.license):
        yield Gap(
            "license",
            f"{named} states no licence that is an SPDX expression",
            "read its licence, and name it under 'license' in wheels.yaml",
        )
    if not (wheel.license_files or entry.license_files):
        yield Gap(
            "license_files",
            f"{named} has no licence text inside",
            "put upstream's text in recipes/wheels/ and name it under 'license_files'",
        )
    if not (entry.homepage or wheel.homepage):
        yield Gap(
            "homepage", f"{named} names no homepage", "name it under 'homepage' in wheels.yaml"
        )
    if not (entry.commands or (wheel.imports if entry.imports is None else entry.imports)):
        yield Gap(
            "imports",
            f"{named} has no importable top-level name to test",
            "name some under 'imports' in wheels.yaml, or a test under 'commands'",
        )
