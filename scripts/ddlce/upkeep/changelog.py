"""The part of a release in CHANGELOG.md: what its locks change, for a person to edit."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ddlce.errors import InputError
from ddlce.files import write_atomic
from ddlce.lock import lock_path, locks_folder, locks_of
from ddlce.lockdiff import Change, Difference, compare
from ddlce.model.envlock import EnvLock
from ddlce.settings import Settings
from ddlce.upkeep.changes import notices

CHANGELOG = "CHANGELOG.md"

#: What the heading of a release says until it is made.
PENDING = "not released yet"

#: The longest line.
WIDTH = 126


@dataclass(frozen=True)
class Part:
    """What was added to a release's part.

    Attributes:
        path: the changelog.
        points: that were added.
        since: the releases that the locks were compared with.
    """

    path: Path
    points: tuple[str, ...]
    since: tuple[str, ...]


def add_part(settings: Settings, envs: Sequence[str], version: str) -> Part:
    """Add what changes since the release before; what is there already stays as it is.

    Raises:
        InputError: the tree has no lock of an earlier release, or one is damaged.
    """
    found = [*_differences(settings, envs)]
    if not found:
        raise InputError(
            f"{locks_folder(settings)} has no lock of an earlier release than {version}",
            "write the first release's part by hand",
        )
    path = settings.tree / CHANGELOG
    text = path.read_text("utf-8") if path.is_file() else "# Changelog\n"
    present = " ".join((part_of(text, version) or "").split())
    points = [point for point in _points(found) if point not in present]
    if points:
        write_atomic(path, _with(text, version, points))
    since = sorted({each.old.release for each in found})
    return Part(path, tuple(points), tuple(since))


def part_of(text: str, version: str) -> str | None:
    """What a changelog says of a release that is not made yet; None where it has no such part."""
    found = re.search(rf"(?ms)^## {re.escape(version)}, {PENDING}$\n(.*?)(?=^## |\Z)", text)
    return found[1] if found else None


def _with(text: str, version: str, points: Iterable[str]) -> str:
    lines = "".join(
        textwrap.fill(
            *(point, WIDTH),
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        + "\n"
        for point in points
    )
    heading = f"## {version}, {PENDING}\n"
    part = part_of(text, version)
    if part is None:
        first = re.search(r"(?m)^## ", text)
        before = text[: first.start()] if first else text.rstrip("\n") + "\n\n"
        after = "\n" + text[first.start() :] if first else ""
        return f"{before}{heading}\n{lines}{after}"
    begin = text.index(heading) + len(heading)
    said = part.rstrip("\n")
    rest = text[begin + len(part) :]
    return text[:begin] + (f"{said}\n" if said else "\n") + lines + ("\n" if rest else "") + rest


def _differences(settings: Settings, envs: Sequence[str]) -> Iterator[Difference]:
    for lock in locks_of(settings, envs):
        if before := _before(settings, lock):
            yield compare(before, lock)


def _before(settings: Settings, lock: EnvLock) -> EnvLock | None:
    """The lock of the newest release that is older than a lock's."""
    release, now = _version(lock.release), lock_path(settings, lock.env, lock.platform)
    older = [
        (version, path)
        for path in locks_folder(settings).glob(f"*/{now.name}")
        if (version := _version(path.parent.name)) and release and version < release
    ]
    return EnvLock.load(max(older)[1]) if older else None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _points(found: Iterable[Difference]) -> list[str]:
    """A point for each lock, then what users will notice, each once."""
    found = [*found]
    said = [point for each in found if (point := _packages(each))]
    said += [f"- {notice}" for each in found for notice in notices(each)]
    return [*dict.fromkeys(said)]


def _packages(difference: Difference) -> str:
    def names(changes: Iterable[Change]) -> str:
        return ", ".join(
            " ".join((c.name, " → ".join(p.version for p in (c.old, c.new) if p))) for c in changes
        )

    groups = [
        ("", difference.of_kind("newer", "older")),
        ("new: ", difference.of_kind("new")),
        ("gone: ", difference.of_kind("gone")),
    ]
    said = "; ".join(f"{word}{names(changes)}" for word, changes in groups if changes)
    return f"- `{difference.new.env}` on {difference.new.platform}: {said}." if said else ""
