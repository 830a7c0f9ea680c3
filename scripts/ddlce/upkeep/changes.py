"""The difference of two locks as a page: the text of a change, and of a release's notes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from ddlce.advisories.match import gaps
from ddlce.lockdiff import Change, Difference
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.settings import release_folder
from ddlce.upkeep.holes import Holes

#: How messages call what a machine must have.
VIRTUAL = {"__glibc": "glibc", "__cuda": "a driver for CUDA", "__linux": "Linux"}


def to_markdown(difference: Difference, holes: Holes | None = None) -> str:
    """The page; with the known holes, where they were looked up."""
    old, new = difference.old, difference.new
    lines = [
        f"# {new.env} for {new.platform}, from {_name(old)} to {_name(new)}",
        "",
        f"{len(old.packages)} → {len(new.packages)} packages; "
        f"{_megabytes(_size(old))} → {_megabytes(_size(new))} MB to download.",
    ]
    if said := [*notices(difference)]:
        lines += ["", "## What users will notice", "", *(f"- {line}" for line in said)]
    lines += _versions(difference)
    if licences := [c for c in difference.changes if c.new and _license(c.old) != _license(c.new)]:
        rows = [(c.name, _license(c.old), _license(c.new)) for c in licences]
        lines += ["", "## Licences", "", *_table(("package", *_columns(difference)), rows)]
    if difference.pins:
        titles = ("package", _columns(difference)[1], f"{_columns(difference)[0]} was compiled for")
        asked = [
            (pin.name, pin.version, spec, ", ".join(names))
            for pin in difference.pins
            for spec, names in pin.asked.items()
        ]
        lines += ["", "## ABI pins", "", *_table((*titles, "by"), asked)]
    if holes:
        lines += ["", "## Known holes", "", *_holes(holes, _columns(difference))]
    return "\n".join(lines) + "\n"


def _holes(holes: Holes, columns: tuple[str, str]) -> Iterator[str]:
    """Those that are open in one of the locks; the others are no news."""
    new, stays, closed, _ = (holes.count(rank) for rank in range(4))
    newest = f", the newest of {holes.newest[:10]}" if holes.newest else ""
    yield f"{closed} closed, {new} new, {stays} {'stays' if stays == 1 else 'stay'} open, by " + (
        f"{holes.advisories} advisories{newest}."
    )
    rows = [
        (row.package, row.hole, row.old or "", row.new or "")
        for row in holes.rows
        if "open" in (row.old, row.new)
    ]
    if rows:
        yield ""
        yield from _table(("package", "hole", *columns), rows)
    for gap in gaps(holes.left):
        yield ""
        yield f"Not looked up, {gap}."


def to_json(difference: Difference, holes: Holes | None = None) -> dict[str, Any]:
    """The difference for programs."""
    looked_up: dict[str, Any] = {}
    if holes:
        looked_up = {"holes": [*map(asdict, holes.rows)], "left": [*map(asdict, holes.left)]}
    return looked_up | {
        "platform": difference.new.platform,
        "old": _summary(difference.old),
        "new": _summary(difference.new),
        "notices": [*notices(difference)],
        "changes": [
            {"name": c.name, "kind": c.kind, "old": _facts(c.old), "new": _facts(c.new)}
            for c in difference.changes
        ],
        "pins": [asdict(pin) for pin in difference.pins],
    }


def notices(difference: Difference) -> Iterator[str]:
    """What users will notice, a sentence each; what costs them most comes first."""
    for change in difference.of_kind("newer", "older"):
        if change.name == "python" and _numbers(change, 2):
            yield (f"{_step(change)}: overlays, clones and compiled extensions are made anew.")
    for pin in difference.pins:
        change = next(c for c in difference.changes if c.name == pin.name)
        if pin.name != "python":
            asked = " and ".join(pin.asked)
            yield f"{_step(change)}: what you compiled for {asked}, is compiled anew."
    yield from _needs(difference.old, difference.new)
    for change in difference.of_kind("gone"):
        assert change.old is not None
        yield f"{change.name} {change.old.version} is not there any more."
    for change in difference.of_kind("newer"):
        if change.name != "python" and _numbers(change, 1):
            yield f"{_step(change)}: the first number rises, so its interface may have changed."
    for change in difference.of_kind("older"):
        yield f"{_step(change)} goes back."
    yield from _variables(difference.old, difference.new)


def _needs(old: EnvLock, new: EnvLock) -> Iterator[str]:
    for name, word in VIRTUAL.items():
        before, after = old.virtual_packages.get(name), new.virtual_packages.get(name)
        if after and after != before:
            was = f"it was {before}" if before else "it needed none"
            yield f"It needs {word} {after} or newer; {was}."


def _variables(old: EnvLock, new: EnvLock) -> Iterator[str]:
    for name in sorted(old.variables.keys() | new.variables.keys()):
        before, after = old.variables.get(name), new.variables.get(name)
        if after is None:
            yield f"The environment variable {name} is not set any more."
        elif before != after:
            was = "it was not set" if before is None else f"it was `{before}`"
            yield f"The environment variable {name} is `{after}`; {was}."


def _versions(difference: Difference) -> list[str]:
    rows = [
        (change.name, _version(change.old), _version(change.new), _growth(change))
        for change in difference.of_kind("new", "gone", "newer", "older")
    ]
    lines = []
    if rows:
        titles = ("package", *_columns(difference), "MB")
        lines += ["", "## Versions", "", *_table(titles, rows)]
    if rebuilt := difference.of_kind("rebuilt"):
        names = ", ".join(change.name for change in rebuilt)
        lines += ["", f"Built anew with the same version: {names}."]
    return lines


def _columns(difference: Difference) -> tuple[str, str]:
    """The titles of the two locks: their releases, where these differ."""
    old, new = difference.old, difference.new
    return (_name(old), _name(new)) if old.release == new.release else (old.release, new.release)


def _table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    titles = [*titles]
    yield f"| {' | '.join(titles)} |"
    yield "|---" * len(titles) + "|"
    for row in rows:
        yield "|" + "".join(f" {cell} |" if cell else " |" for cell in row)


def _step(change: Change) -> str:
    return f"{change.name} {_version(change.old)} → {_version(change.new)}"


def _numbers(change: Change, count: int) -> bool:
    """Whether one of the version's first numbers is another."""
    return _version(change.old).split(".")[:count] != _version(change.new).split(".")[:count]


def _name(lock: EnvLock) -> str:
    return release_folder(lock.release, lock.digest)


def _version(package: LockedPackage | None) -> str:
    return package.version if package else ""


def _license(package: LockedPackage | None) -> str:
    return (package.license or "") if package else ""


def _growth(change: Change) -> str:
    grown = (change.new.size if change.new else 0) - (change.old.size if change.old else 0)
    return f"{grown / 1e6:+.1f}"


def _size(lock: EnvLock) -> int:
    return sum(package.size for package in lock.packages)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f}"


def _summary(lock: EnvLock) -> dict[str, Any]:
    return {
        "env": lock.env,
        "release": lock.release,
        "digest": lock.digest,
        "packages": len(lock.packages),
        "size": _size(lock),
    }


def _facts(package: LockedPackage | None) -> dict[str, Any] | None:
    fields = ("version", "build", "license", "size")
    return {field: getattr(package, field) for field in fields} if package else None
