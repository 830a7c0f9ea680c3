"""`ddlce env check`: what an overlay shadows of its release, and what is broken."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from ddlce.env.layout import Layout, read_origin
from ddlce.env.records import Record, read_records
from ddlce.errors import DdlceError
from ddlce.overlay.create import CONSTRAINTS, PTH, pip_conf
from ddlce.overlay.installed import Distribution, installed, unmet
from ddlce.overlay.loading import failing_imports, missing_libraries
from ddlce.overlay.model import Overlay, require_release
from ddlce.overlay.pins import (
    Pin,
    constraints,
    module_of,
    read_constraints,
    release_modules,
    release_pins,
    release_programs,
)

NOBODYS = "no package"


@dataclass(frozen=True)
class Shadow:
    """Something of the release that is hidden by the overlay.

    Attributes:
        kind: `package`, `module` or `program`.
        name: of the package, or the dotted name of the module, or the program.
        version: of the package in the overlay that hides it, with its name unless it is the same.
        package: the package of the release that has it.
        release_version: of that package.
        where: the folder or file in the overlay.
    """

    kind: str
    name: str
    version: str
    package: str
    release_version: str
    where: Path


@dataclass
class Checked:
    """The outcome of `check`.

    Attributes:
        prefix: the overlay.
        release: the prefix that it is made on.
        against: the release that it was compared with; another one where that is gone.
        packages: how many distributions the overlay has.
        shadowed: what it hides of the release.
        broken: requirements of its packages that are not met, and modules that cannot be loaded.
        problems: what concerns the overlay as a whole.
        notes: what is good to know, and no fault.
    """

    prefix: Path
    release: Path
    against: Path | None
    packages: int = 0
    shadowed: list[Shadow] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when nothing is shadowed, broken or wrong."""
        return not (self.shadowed or self.broken or self.problems)


def check(layout: Layout, prefix: Path, overlay: Overlay, against: Path | None = None) -> Checked:
    """Compare an overlay with its release.

    Where its release is gone, the default release of the same environment takes its place: so one
    sees what the packages of the overlay would lack there.

    Args:
        layout: the root, whose default release is named.
        against: another release to compare it with, before one moves to that.

    Raises:
        InputError: `against` is no release.
    """
    release = Path(overlay.release)
    checked = Checked(prefix, release, against)
    if against:
        require_release(against)
    _check_itself(checked, overlay)
    default = layout.current(overlay.env)
    if against is None:
        checked.against = _own_release(checked, overlay) or default
    if default and default != release and release.is_dir():
        checked.notes.append(f"the default release of {overlay.env} is now {default}")
    mine = installed(prefix)
    checked.packages = len(mine)
    records = read_records(checked.against) if checked.against else []
    pins = release_pins(records) if records else _noted(prefix)
    versions = {pin.name: pin.version for pin in pins.values()}
    checked.shadowed += _shadowed_packages(mine, pins)
    if records:
        packages = {str(r.data["name"]): str(r.data["version"]) for r in records}
        checked.shadowed += _shadowed_files(prefix, mine, records, packages, checked.shadowed)
        _check_python(checked, overlay, packages)
        checked.broken += unmet(mine, versions, packages.get("python", overlay.python))
        if checked.against == release:
            _check_pins(checked, overlay, pins)
            checked.broken += (line for _, line in missing_libraries(prefix, mine, records))
            checked.broken += _failing_imports(checked, mine)
    return checked


def _failing_imports(checked: Checked, mine: list[Distribution]) -> list[str]:
    """Nobody runs the code of another user's overlay, root least of all."""
    if checked.prefix.stat().st_uid != os.geteuid():
        checked.notes.append("its modules were not imported: it belongs to another user")
        return []
    return list(failing_imports(checked.prefix, mine))


def _check_itself(checked: Checked, overlay: Overlay) -> None:
    """Check the files that make the folder an overlay."""
    if Path(overlay.prefix).resolve() != checked.prefix.resolve():
        checked.problems.append(
            f"it was moved: its programs name {overlay.prefix}, where it was made; make another"
        )
    try:
        kept = (checked.prefix / "pip.conf").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        kept = ""
    wanted = pip_conf(Path(overlay.prefix)).splitlines()
    if not {line for line in wanted if line.startswith("constraint")} <= {*kept.splitlines()}:
        checked.problems.append(
            f"{checked.prefix / 'pip.conf'} does not name {CONSTRAINTS} any more: pip may replace "
            "packages of the release"
        )
    if not list(checked.prefix.glob(f"lib/python3.*/site-packages/{PTH}")):
        checked.problems.append(
            f"{PTH} is missing: packages in ~/.local would shadow the release's"
        )


def _own_release(checked: Checked, overlay: Overlay) -> Path | None:
    """The overlay's release where it is still what it was; else a problem says what happened."""
    origin = read_origin(checked.release)
    if origin is None:
        checked.problems.append(
            f"its release {overlay.env} {overlay.version} is gone from {checked.release}: its "
            "Python does not start; make another overlay, and install the same packages there"
        )
        return None
    try:
        require_release(checked.release)
    except DdlceError as error:
        checked.problems.append(error.message)
        return None
    if origin.digest != overlay.digest:
        checked.problems.append(
            f"{checked.release} is another release than the one that the overlay was made on"
        )
    return checked.release


def _check_python(done: Checked, overlay: Overlay, packages: dict[str, str]) -> None:
    python = packages.get("python", overlay.python)
    if ".".join(python.split(".")[:2]) != overlay.python:
        done.problems.append(
            f"its packages are for Python {overlay.python}, and {done.against} has Python {python}"
        )


def _check_pins(checked: Checked, overlay: Overlay, pins: dict[str, Pin]) -> None:
    title = f"{overlay.env} {overlay.version} ({overlay.release})"
    path = checked.prefix / CONSTRAINTS
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    if text != constraints(title, pins):
        checked.problems.append(f"{path} does not have the packages of the release any more")


def _noted(prefix: Path) -> dict[str, Pin]:
    """What the overlay itself remembers of its release."""
    try:
        return read_constraints((prefix / CONSTRAINTS).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}


def _shadowed_packages(mine: list[Distribution], pins: dict[str, Pin]) -> Iterator[Shadow]:
    for each in mine:
        pin = pins.get(canonicalize_name(each.name))
        if pin:
            yield Shadow("package", each.name, each.version, pin.package, pin.version, each.where)


def _shadowed_files(
    prefix: Path,
    mine: list[Distribution],
    records: list[Record],
    packages: dict[str, str],
    known: list[Shadow],
) -> Iterator[Shadow]:
    """Modules and programs of the release that single files of the overlay hide.

    A distribution that was named already is not named again for each of its files. Of a package
    of modules, the topmost that both have is named.
    """
    named_where = {shadow.where for shadow in known}
    owner = {
        str((each.where.parent / file).resolve()): each for each in mine for file in each.files
    }
    modules = release_modules(records)
    named: set[str] = set()
    for site in sorted(prefix.glob("lib/python3.*/site-packages")):
        paths = (path for path in sorted(site.rglob("*")) if path.suffix in (".py", ".so"))
        # A package of modules is shadowed by its first file that is in the release too.
        found = ((module_of(f"site-packages/{path.relative_to(site)}"), path) for path in paths)
        for module, path in sorted(found, key=lambda pair: (pair[0] or "", pair[1])):
            if module not in modules or any(module.startswith(f"{name}.") for name in named):
                continue
            named.add(module)
            by = owner.get(str(path.resolve()))
            if by is None or by.where not in named_where:
                yield _shadow("module", module, by, modules[module], packages, path)
    programs = release_programs(records)
    for path in sorted((prefix / "bin").iterdir()):
        by = owner.get(str(path.resolve()))
        if path.name in programs and by and by.where not in named_where:
            yield _shadow("program", path.name, by, programs[path.name], packages, path)


def _shadow(
    kind: str,
    name: str,
    by: Distribution | None,
    package: str,
    packages: dict[str, str],
    where: Path,
) -> Shadow:
    version = by.title if by else NOBODYS
    return Shadow(kind, name, version, package, packages[package], where)
