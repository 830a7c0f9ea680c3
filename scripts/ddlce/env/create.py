"""`ddlce env create`: from a lock to an immutable release."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jinja2 import StrictUndefined
from jinja2.sandbox import SandboxedEnvironment
from packaging.version import Version

from ddlce.engine.driver import driver_cuda
from ddlce.engine.install import CacheLayer, InstallRequest, install
from ddlce.engine.worker import OnProgress
from ddlce.env.bytecode import compile_bytecode
from ddlce.env.condacache import show_to_conda
from ddlce.env.default import newer_release, switch
from ddlce.env.finish import finish, finish_records
from ddlce.env.freeze import freeze, make_read_only
from ddlce.env.gc import prune_packages
from ddlce.env.layout import (
    CLONES,
    LOCK_COPY,
    Layout,
    Origin,
    opened,
    read_origin,
    staged,
)
from ddlce.env.names import name_releases
from ddlce.env.records import read_records
from ddlce.errors import InputError, MachineError
from ddlce.files import explain_os_errors, write_atomic
from ddlce.filesystem import check_prefix, require
from ddlce.lock import channel_addresses
from ddlce.model.envlock import EnvLock
from ddlce.ownership import check_place
from ddlce.platforms import this_platform
from ddlce.runner import Runner
from ddlce.settings import Settings
from ddlce.waiting import OnWait, waiting_lock


@dataclass(frozen=True)
class Created:
    """The outcome of `create`.

    Attributes:
        prefix: the release.
        existed: it was there already, and nothing was installed.
        packages: how many it has.
        compiled: how many modules were compiled.
        seconds: step → time taken.
    """

    prefix: Path
    existed: bool
    packages: int
    compiled: int
    seconds: dict[str, float]


def create(
    settings: Settings,
    lock: EnvLock,
    channel: str,
    *,
    offline: bool = False,
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
    runner: Runner | None = None,
    default: bool = True,
    keep_newer: bool = False,
    candidate: bool = False,
) -> Created:
    """Install a lock as a release and make it the default one.

    A release for another platform is installed, but never the default: it does not run here.

    Args:
        settings: the root, and the tree with the condarc template.
        channel: the address of our own channel.
        runner: runs programs of the lock's platform, where it is not this machine's.
        default: whether it becomes the default release of its environment.
        keep_newer: it does not where a newer one is that.
        candidate: it does not, and if it is new, users see nothing of it until `make_default`.

    Raises:
        InputError: the prefix would be too long, or has a colon, a comma or a line break.
        MachineError: the lock is for other machines, the disk is full, the root read-only or on
            a file system that runs no programs.
        SourceError: a package is missing or is not the locked one.
    """
    if runner is None:
        check_machine(lock)
    layout = Layout(settings.root)
    prefix = layout.prefix(lock.env, lock.release, lock.digest)
    channels = channel_addresses(lock.channels, channel)
    check_root(layout, prefix)
    with waiting_lock(layout.lock, on_wait):
        if read_origin(prefix):
            result = Created(prefix, True, len(lock.packages), 0, {})
        else:
            condarc = render_condarc(settings, list(channels.values()))
            run = runner or list
            # The cache is closed again before the release has its name: then all is done.
            with staged(prefix) as staging, _opened_cache(layout):
                request = InstallRequest(
                    *(lock.packages, channels, staging, [CacheLayer(layout.pkgs)], lock.specs),
                    final=prefix,
                    offline=offline,
                    progress=progress,
                    on_wait=on_wait,
                )
                result = _fill(request, prefix, lock, layout, condarc, run)
                _mark(layout.candidate_mark(prefix), candidate and runner is None)
        if runner is None:
            stays = keep_newer and newer_release(layout, lock)
            _name(layout, prefix if default and not stays and not candidate else None)
    return result


def check_root(layout: Layout, prefix: Path) -> None:
    """Refuse a root in which a release could not be used, or that others could change.

    Raises:
        InputError: its path cannot be used.
        MachineError: it cannot be used, or be relied on.
    """
    check_prefix(prefix)
    if "," in str(layout.pkgs):
        raise InputError(
            f"--root: {layout.root} has a comma, at which conda divides its list of caches",
            "choose a path without one",
        )
    require(layout.root, "--root or DDLCE_ROOT")
    for place in (prefix.parent, layout.pkgs):
        check_place(place, "the root")


def check_machine(lock: EnvLock) -> None:
    """Refuse a lock whose packages cannot run here.

    Raises:
        MachineError: another platform, or a glibc older than the lock's.
    """
    here = this_platform()
    if lock.platform != here:
        raise MachineError(
            f"the lock of {lock.env} is for {lock.platform}, and this machine is {here}",
            f"use envs/locks/{lock.env}.{here}.lock",
        )
    needed = lock.virtual_packages.get("__glibc", "0")
    found = (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0").split()[-1]
    if Version(found) < Version(needed):
        raise MachineError(
            f"{lock.env} {lock.release} needs glibc {needed}, and this machine has {found}",
            "use a newer system, or lower the glibc floor in the manifest and build for it",
        )


def missing_driver(lock: EnvLock) -> str:
    """Why the lock's programs can't use a GPU of this machine; "" where they can, or need none.

    It is no reason to refuse: a shared root is filled on a node that has no GPU.
    """
    needed, found = lock.virtual_packages.get("__cuda", ""), driver_cuda()
    if not needed or Version(found or "0") >= Version(needed):
        return ""
    here = f"is for CUDA {found}" if found else "is missing"
    return f"{lock.env} needs a driver for CUDA {needed} where it runs; this machine's {here}"


def render_condarc(settings: Settings, channels: list[str]) -> str:
    """The `.condarc` of a release."""
    path = settings.tree / "channel" / "condarc.j2"
    templates = SandboxedEnvironment(undefined=StrictUndefined, keep_trailing_newline=True)
    layout = Layout(settings.root)
    values = {
        "channels": channels,
        "envs": CLONES,
        "names": str(layout.names),
        "pkgs": str(layout.pkgs),
    }
    text = path.read_text(encoding="utf-8")
    try:
        return templates.from_string(text).render(values)
    except Exception as error:  # a template can raise anything, and a sandbox refuses in many ways
        raise InputError(
            f"{path}: not a usable template: {error}", "compare it with the one in DDL-CE's tree"
        ) from error


@contextmanager
def _opened_cache(layout: Layout) -> Iterator[None]:
    """The cache of packages, writable; it is read-only again afterwards."""
    try:
        with opened(layout.pkgs):
            yield
    except MachineError:
        prune_packages(layout)  # a full disk: do not keep what nothing uses
        raise
    finally:
        for folder in layout.pkgs.glob("[!.]*"):  # a lock that all can read, all can hold
            make_read_only(folder)


def _fill(
    request: InstallRequest,
    prefix: Path,
    lock: EnvLock,
    layout: Layout,
    condarc: str,
    runner: Runner,
) -> Created:
    staging, start = request.prefix, time.monotonic()
    install(request)
    installed = time.monotonic()
    records = read_records(staging)
    with explain_os_errors(layout.pkgs):
        show_to_conda(layout.pkgs, records)
    with explain_os_errors(prefix):
        compiled = compile_bytecode(staging, prefix, records, runner)
        finish_records(records)
        compiling = time.monotonic()
        origin = Origin(
            kind="release",
            env=lock.env,
            release=lock.release,
            digest=lock.digest,
            platform=lock.platform,
            manifest=lock.manifest,
            channels=request.channels,
            specs=lock.specs,
            pkgs=str(layout.pkgs),
        )
        write_atomic(staging / LOCK_COPY, lock.to_yaml())
        write_atomic(staging / ".condarc", condarc)
        command = f"ddlce env create {lock.env}"
        finish(staging, origin, command, records, variables=lock.variables)
        freeze(staging, f"{lock.env} {lock.release}", records)
        for record in records:
            record.save()
        make_read_only(staging)
    seconds = {
        "install": installed - start,
        "compile": compiling - installed,
        "freeze": time.monotonic() - compiling,
    }
    return Created(prefix, False, len(lock.packages), compiled, seconds)


def _name(layout: Layout, default: Path | None) -> None:
    """Give all releases the names by which conda finds them; `default` becomes the default one."""
    if default:
        switch(layout, default)
    else:
        name_releases(layout)


def _mark(mark: Path, candidate: bool) -> None:
    """Say of a new release, before it has its name, whether it is a candidate."""
    if candidate:
        write_atomic(mark, "")
    elif mark.exists():  # of one that was removed
        mark.unlink()
