"""`ddlce env gc`: removing old releases, and what nothing uses any more."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from ddlce.env.layout import (
    CURRENT,
    LOCK_COPY,
    ORIGIN,
    Layout,
    clones,
    left_open,
    opened,
    read_origin,
)
from ddlce.env.names import name_releases
from ddlce.errors import MachineError
from ddlce.files import explain_os_errors
from ddlce.model.envlock import EnvLock
from ddlce.ownership import check_place
from ddlce.packagecache import find, note_of
from ddlce.settings import Settings
from ddlce.trees import (
    PARTIAL,
    obstacle,
    remove_tree,
    running_from,
)
from ddlce.waiting import OnWait, waiting_lock


@dataclass(frozen=True)
class Kept:
    """What was to be removed and cannot be.

    Attributes:
        path: the folder.
        why: one clause.
    """

    path: Path
    why: str


@dataclass(frozen=True)
class Collected:
    """What garbage collection removed, or would remove.

    Attributes:
        releases: prefixes of releases.
        packages: folders in the package cache.
        leftovers: half-made folders of killed runs.
        kept: what it leaves, since others own it or a process runs from it.
    """

    releases: list[Path] = field(default_factory=list)
    packages: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)
    kept: list[Kept] = field(default_factory=list)


def collect(
    settings: Settings,
    *,
    keep: int,
    dry_run: bool = False,
    on_wait: OnWait | None = None,
) -> Collected:
    """Remove old releases, cached packages that no release uses, and leftovers.

    What belongs to others, and releases that a process of this machine runs from, are left.

    Args:
        keep: how many releases of each environment stay for each platform, the default one among
            them; the newest of the others are chosen by the time they were made. Candidates are
            neither counted nor removed.

    Raises:
        MachineError: others could change the root, or a release in it cannot be read.
    """
    layout = Layout(settings.root)
    if not layout.root.is_dir():
        return Collected()
    check_place(layout.envs, "the root")
    with waiting_lock(layout.lock, on_wait):
        old: list[Path] = []
        for folder in sorted(layout.envs.glob("*/")):
            current = (folder / CURRENT).resolve()
            alike: dict[str, list[Path]] = {}
            for prefix in layout.releases():
                if prefix.parent != folder or layout.is_candidate(prefix):
                    continue
                if origin := read_origin(prefix):
                    alike.setdefault(origin.platform, []).append(prefix)
            for mine in alike.values():
                mine.sort(key=lambda p: (p.resolve() == current, p.stat().st_mtime), reverse=True)
                old += mine[max(keep, 1) :]
        kept: list[Kept] = []
        doomed = _removable(old, kept)
        running = running_from(doomed)
        kept += [Kept(path, f"{process} runs from it") for path, process in running.items()]
        doomed = [path for path in doomed if path not in running]
        leftovers = [p for p in layout.envs.glob("*/.*") if PARTIAL in p.name]
        leftovers = _removable(leftovers, kept)
        packages = _removable(unused_packages(layout, without=doomed), kept)
        if not dry_run:
            for folder in [*doomed, *leftovers]:
                remove_tree(folder)
            remove_packages(layout, packages)
            name_releases(layout)
        return Collected(doomed, packages, leftovers, kept)


def _removable(folders: list[Path], kept: list[Kept]) -> list[Path]:
    """Those that this user can remove; the others are added to `kept`."""
    problems = {folder: obstacle(folder) for folder in folders}
    kept += [Kept(folder, why) for folder, why in problems.items() if why]
    return [folder for folder, why in problems.items() if not why]


def prune_packages(layout: Layout) -> None:
    """Remove the cached packages that no release uses; call under the root's lock."""
    with contextlib.suppress(MachineError):  # a release that cannot be read: remove none
        remove_packages(layout, _removable(unused_packages(layout), []))


def unused_packages(layout: Layout, without: list[Path] | None = None) -> list[Path]:
    """Folders in the package cache that no release needs, those in `without` not counted.

    Packages of this user's clones count as needed, since a clone of a clone reads them again.

    Raises:
        MachineError: a release cannot be read, so it is not known what it needs.
    """
    _check_readable(layout)
    used: set[Path | None] = set()
    own = [p for p in clones() if (origin := read_origin(p)) and origin.pkgs == str(layout.pkgs)]
    for prefix in [*layout.releases(), *own]:
        if prefix not in (without or []):
            locked = EnvLock.load(prefix / LOCK_COPY).packages
            used |= {find(layout.pkgs, p.stem, p.sha256) for p in locked}
    folders = sorted(layout.pkgs.iterdir()) if layout.pkgs.is_dir() else []
    return [p for p in folders if p.is_dir() and p not in used]


def _check_readable(layout: Layout) -> None:
    for folder in layout.envs.glob("*/"):
        for prefix in [folder, *(p for p in folder.glob("[!.]*") if not p.is_symlink())]:
            for path in (prefix, prefix / ORIGIN.parent, prefix / ORIGIN):
                if not os.path.lexists(path) or os.access(path, os.R_OK, effective_ids=True):
                    continue
                raise MachineError(
                    f"cannot read {path}, so it is not known which packages are in use",
                    f"let everybody read it: chmod -R a+rX {prefix}",
                )


def remove_packages(layout: Layout, packages: list[Path]) -> None:
    """Remove folders from the package cache, with rattler's notes beside them."""
    if not packages and not left_open(layout.pkgs):
        return
    with explain_os_errors(layout.pkgs):
        with opened(layout.pkgs):
            for package in packages:
                note_of(package).unlink(missing_ok=True)
                remove_tree(package)
