"""Removing environments, and what nothing uses any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ddlce.env.layout import (
    LOCK_COPY,
    PARTIAL,
    Layout,
    find_env,
    read_origin,
    remove_tree,
    user_lock,
)
from ddlce.env.names import name_releases
from ddlce.env.waiting import waiting_lock
from ddlce.errors import InputError
from ddlce.files import explain_os_errors
from ddlce.model.envlock import EnvLock
from ddlce.settings import Settings


@dataclass(frozen=True)
class Collected:
    """What garbage collection removed, or would remove.

    Attributes:
        releases: prefixes of releases.
        packages: folders in the package cache.
        leftovers: half-made folders of killed runs.
    """

    releases: list[Path] = field(default_factory=list)
    packages: list[Path] = field(default_factory=list)
    leftovers: list[Path] = field(default_factory=list)


def remove(settings: Settings, name: str, on_wait: Callable[[], None] | None = None) -> Path:
    """Remove a clone, or a release that is not the default one; returns its prefix.

    Raises:
        InputError: there is none of that name, or it is the default release.
    """
    prefix = find_env(settings, name)
    record = read_origin(prefix)
    layout = Layout(settings.root)
    if record and record.kind == "release":
        if layout.current(record.env) == prefix:
            raise InputError(
                f"{prefix} is the default release of {record.env}, which users load",
                "create another release first; this one can be removed after that",
            )
        lock = layout.lock
    else:
        lock = user_lock(settings, prefix)
    with waiting_lock(lock, on_wait):
        remove_tree(prefix)
        if lock == layout.lock:
            name_releases(layout)
    return prefix


def collect(
    settings: Settings,
    *,
    keep: int = 1,
    dry_run: bool = False,
    on_wait: Callable[[], None] | None = None,
) -> Collected:
    """Remove old releases, cached packages that no release uses, and leftovers.

    Args:
        settings: the root.
        keep: how many releases of each environment stay, the default one among them; the
            newest of the others are chosen by the time they were made.
        dry_run: only say what would be removed.
        on_wait: called once when another process is at work under the root.
    """
    layout = Layout(settings.root)
    if not layout.root.is_dir():
        return Collected()
    with waiting_lock(layout.lock, on_wait):
        doomed: list[Path] = []
        leftovers = [p for p in layout.envs.glob("*/.*") if PARTIAL in p.name]
        for folder in sorted(layout.envs.glob("*/")):
            current = layout.current(folder.name)
            mine = [p for p in layout.releases() if p.parent == folder]
            mine.sort(key=lambda p: (p.resolve() == current, p.stat().st_mtime), reverse=True)
            doomed += mine[max(keep, 1) :]
        packages = unused_packages(layout, without=doomed)
        if not dry_run:
            for folder in [*doomed, *leftovers]:
                remove_tree(folder)
            remove_packages(layout, packages)
            if doomed:
                name_releases(layout)
        return Collected(doomed, packages, leftovers)


def prune_packages(layout: Layout) -> None:
    """Remove every cached package that no release uses; call under the root's lock."""
    remove_packages(layout, unused_packages(layout))


def unused_packages(layout: Layout, without: list[Path] | None = None) -> list[Path]:
    """Folders in the package cache that no release needs, those in `without` not counted."""
    used: set[str] = set()
    for prefix in layout.releases():
        if prefix not in (without or []):
            used |= {p.stem for p in EnvLock.load(prefix / LOCK_COPY).packages}
    folders = sorted(layout.pkgs.iterdir()) if layout.pkgs.is_dir() else []
    return [p for p in folders if p.is_dir() and p.name not in used]


def remove_packages(layout: Layout, packages: list[Path]) -> None:
    """Remove folders from the package cache, with rattler's notes beside them."""
    if not packages:
        return
    with explain_os_errors(layout.pkgs):
        mode = layout.pkgs.stat().st_mode
        layout.pkgs.chmod(0o755)
        try:
            for package in packages:
                package.with_name(f"{package.name}.lock").unlink(missing_ok=True)
                remove_tree(package)
        finally:
            layout.pkgs.chmod(mode)
