"""`ddlce env default`: which release users get by the environment's name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from ddlce.env.layout import CURRENT, Layout, read_origin, require_origin
from ddlce.env.names import name_releases
from ddlce.errors import InputError
from ddlce.files import explain_os_errors, link_atomic
from ddlce.model.envlock import EnvLock
from ddlce.ownership import check_place
from ddlce.platforms import this_platform
from ddlce.waiting import OnWait, waiting_lock


@dataclass(frozen=True)
class Switched:
    """The outcome of `make_default`.

    Attributes:
        prefix: the default release.
        before: the one that was it until now; None where there was none.
    """

    prefix: Path
    before: Path | None


def layout_of(prefix: Path) -> Layout:
    """The root that a release is under, which a path may name beside that of the settings.

    Raises:
        InputError: it is no release, or one that does not stand where it was installed.
    """
    origin = require_origin(prefix)
    layout = Layout(Path(*prefix.parts[:-3]))
    installed = layout.prefix(origin.env, origin.release, origin.digest)
    if origin.kind != "release" or installed != prefix:
        raise InputError(f"{prefix} is not a release under a root", "see: ddlce env list")
    if origin.platform != this_platform():
        raise InputError(
            f"{prefix} is for {origin.platform}, and this machine is {this_platform()}",
            "a release of another platform runs here under emulation, and is never the default",
        )
    return layout


def make_default(prefix: Path, on_wait: OnWait | None = None) -> Switched:
    """Make a release the default one, as a new one or to go back; nothing is installed.

    Args:
        prefix: a release; a candidate is none any more.
        on_wait: told once who else is at work under the root.

    Raises:
        InputError: it is no release of this machine's platform, or was removed meanwhile.
        MachineError: the root cannot be written, or others could change it.
    """
    layout = layout_of(prefix)
    check_place(prefix.parent, "the root")
    with waiting_lock(layout.lock, on_wait):
        if read_origin(prefix) is None:
            raise InputError(f"{prefix} was removed by another process", "see: ddlce env list")
        before = layout.current(prefix.parent.name)
        switch(layout, prefix)
    return Switched(prefix, before)


def newer_release(layout: Layout, lock: EnvLock) -> str:
    """The default release's version if it is newer than the lock's; else ""."""
    current = layout.current(lock.env)
    origin = read_origin(current) if current else None
    if origin is None or origin.platform != lock.platform:
        return ""
    try:
        newer = Version(origin.release) > Version(lock.release)
    except InvalidVersion:
        newer = origin.release > lock.release
    return origin.release if newer else ""


def switch(layout: Layout, prefix: Path) -> None:
    """Make `prefix` the default release, in one step; then conda's names follow.

    Call it under the root's lock.
    """
    before = layout.current(prefix.parent.name)
    with explain_os_errors(prefix.parent):
        if before and before != prefix.resolve():
            # A run that was killed may have left the mark of a release that it had offered.
            layout.candidate_mark(before).unlink(missing_ok=True)
        if before != prefix.resolve():
            link_atomic(prefix.parent / CURRENT, prefix.name)
        # Only now: killed before, it is the candidate that it was, or the default release.
        layout.candidate_mark(prefix).unlink(missing_ok=True)
    name_releases(layout)
