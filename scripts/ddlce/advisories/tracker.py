"""Debian's own list: the JSON file of its security tracker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ddlce.advisories import debversion
from ddlce.advisories.model import Advisory


def is_tracker(data: Any) -> bool:
    """Whether a document is the tracker's: package → number → releases."""
    if not isinstance(data, dict) or not data:
        return False
    first = next(iter(data.values()))
    return isinstance(first, dict) and all(
        isinstance(hole, dict) and "releases" in hole for hole in first.values()
    )


def read(data: Mapping[str, Mapping[str, Any]]) -> Iterator[Advisory]:
    """The advisories of the file, one for each source package, hole and release of Debian.

    Raises:
        KeyError, TypeError, ValueError: it is not in the format.
    """
    for package, holes in data.items():
        for number, hole in holes.items():
            for release, state in hole["releases"].items():
                fixed = state.get("fixed_version", "")
                if fixed == "0":  # the release never had it
                    continue
                yield Advisory(
                    names=(number,),
                    ecosystem=f"Debian:{release}",
                    name=package,
                    affects=_before(fixed),
                    fixed=(fixed,) if fixed else (),
                    severity=state.get("urgency", "").replace("not yet assigned", ""),
                    summary=hole.get("description", ""),
                )


def _before(fixed: str) -> Callable[[str], bool]:
    """All versions, where none is fixed."""
    return lambda version: not fixed or debversion.compare(version, fixed) < 0
