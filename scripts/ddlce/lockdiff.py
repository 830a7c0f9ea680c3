"""What changes from one lock to another: packages, licences, sizes, ABI pins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ddlce.engine.versions import fits, version_key
from ddlce.errors import InputError
from ddlce.model.envlock import EnvLock, LockedPackage

Kind = Literal["new", "gone", "newer", "older", "rebuilt"]


@dataclass(frozen=True)
class Change:
    """One package that two locks do not have alike; `None` stands for the lock that lacks it."""

    name: str
    old: LockedPackage | None
    new: LockedPackage | None

    @property
    def kind(self) -> Kind:
        """`rebuilt`: another file of the same version."""
        if self.old is None:
            return "new"
        if self.new is None:
            return "gone"
        if self.old.version == self.new.version:
            return "rebuilt"
        newer = version_key(self.new.version) > version_key(self.old.version)
        return "newer" if newer else "older"

    @property
    def line(self) -> str:
        """`python: 3.11.2 h1_0 → 3.11.4 h2_0`."""
        labels = [f"{p.version} {p.build}" if p else "none" for p in (self.old, self.new)]
        return f"{self.name}: {' → '.join(labels)}"


@dataclass(frozen=True)
class Pin:
    """A version that compiled packages of the old lock ask for, and that the new lock has not.

    Code of users that was compiled against the old release is bound in the same way.

    Attributes:
        name, version: of the package that they ask for, in the new lock.
        asked: what they ask for, `pytorch 2.13.*` → those that do.
    """

    name: str
    version: str
    asked: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Difference:
    """All that changes from one lock to another.

    Attributes:
        changes: sorted by name.
        pins: the ABI pins that move.
    """

    old: EnvLock
    new: EnvLock
    changes: tuple[Change, ...]
    pins: tuple[Pin, ...]

    def of_kind(self, *kinds: Kind) -> list[Change]:
        """The changes of some kinds."""
        return [change for change in self.changes if change.kind in kinds]


def changes(old: EnvLock, new: EnvLock) -> list[Change]:
    """The packages that two locks do not have alike, sorted by name."""
    before = {package.name: package for package in old.packages}
    after = {package.name: package for package in new.packages}
    names = sorted(before.keys() | after.keys())
    pairs = [Change(name, before.get(name), after.get(name)) for name in names]
    return [pair for pair in pairs if pair.old != pair.new]


def compare(old: EnvLock, new: EnvLock) -> Difference:
    """Compare two locks of one platform.

    Raises:
        InputError: they are of two platforms, whose packages have nothing to do with each other.
    """
    if old.platform != new.platform:
        raise InputError(
            f"one lock is for {old.platform}, the other for {new.platform}",
            "compare two locks of one platform",
        )
    return Difference(old, new, tuple(changes(old, new)), tuple(_moved_pins(old, new)))


def _moved_pins(old: EnvLock, new: EnvLock) -> Iterator[Pin]:
    after = {package.name: package for package in new.packages}
    asked: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for package in old.packages:
        for name, spec in () if package.noarch else _ranges(package):
            if (now := after.get(name)) and not fits(spec, name, now.version):
                asked[name][spec].append(package.name)
    for name, specs in sorted(asked.items()):
        grouped = {spec: tuple(sorted(names)) for spec, names in sorted(specs.items())}
        yield Pin(name, after[name].version, grouped)


def _ranges(package: LockedPackage) -> Iterator[tuple[str, str]]:
    """Name and spec of each dependency on a range of versions.

    One exact version is what a package takes that is made together with another, as a metapackage.
    """
    for spec in package.depends:
        name, version = [*spec.split(), ""][:2]
        if "<" in version or version.endswith(".*"):
            yield name, f"{name} {version}"
