"""Installs a bundle: its packages into the root's channel, then what `ddlce env create` makes.

A killed run leaves whole files only; the next one goes on from there. The bundle was checked by
its header (free space, too: `need`, by `_needed` in write.py), and packages are hashed again while
they are copied, since the file may have changed.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ddlce.bundle.description import RELEASE
from ddlce.engine.worker import OnProgress
from ddlce.env.create import Created, check_machine, check_root, create
from ddlce.env.default import newer_release
from ddlce.env.layout import LOCK_COPY, Layout, clones
from ddlce.errors import InputError, SourceError, WorkError
from ddlce.files import explain_os_errors, make_folder, sha256_file, write_atomic
from ddlce.model.channel import SBOMS
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.modulefile.install import Written, write_modulefiles
from ddlce.ownership import check_place
from ddlce.settings import Settings
from ddlce.sharedchannel import fill
from ddlce.smoke import smoke_command
from ddlce.waiting import OnWait, waiting_lock

BLOCK = 1 << 20

#: In a root's channel that bundles have filled; a site's own channel may have its place.
OF_BUNDLES = ".of-bundles"


@dataclass(frozen=True)
class Stage:
    """Where the header has unpacked the first part of a bundle.

    Attributes:
        file: the bundle.
        channel_at: the byte at which its channel begins.
        folder: where the first part is, under the root.
    """

    file: Path
    channel_at: int
    folder: Path

    @property
    def lock(self) -> EnvLock:
        """What is to be installed."""
        return EnvLock.load(self.folder / RELEASE / "lock")

    def settings(self, root: Path) -> Settings:
        """Settings in which the bundle is the tree."""
        return Settings(
            repo=self.folder / RELEASE,
            cache=self.folder / "cache",
            root=Path(os.path.realpath(root)),
        )


@dataclass(frozen=True)
class Installed:
    """The outcome of `install_bundle`."""

    release: Created
    module: Written
    channel: Path


def install_bundle(
    stage: Stage,
    root: Path,
    *,
    older: bool = False,
    candidate: bool = False,
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> Installed:
    """Install the bundle's release under a root, beside those that are there.

    Args:
        older: allow it where a newer release is the default one, which it stays.
        candidate: if it is new, users see nothing of it until `ddlce env default`.
        on_wait: called once when another process is at work under the root.

    Raises:
        InputError: a newer release is there, or the root's path cannot be used.
        MachineError: the root cannot be used or be relied on, or is full.
        SourceError: a package in the bundle is not the locked one.
    """
    settings, lock = stage.settings(root), stage.lock
    layout = Layout(settings.root)
    check_machine(lock)
    check_place(layout.root, "the root")
    check_root(layout, layout.prefix(lock.env, lock.release, lock.digest))
    newer = newer_release(layout, lock)
    if newer and not older and not candidate:
        raise InputError(
            f"{layout.root} has {lock.env} {newer}, which is newer than {lock.release} in "
            f"{stage.file.name}",
            "say --older to install it beside that one, which stays the default",
        )
    channel = layout.root / "channel"
    fill_channel(stage, layout, channel, lock, candidate, on_wait)
    done = create(
        settings,
        lock,
        channel.as_uri(),
        offline=True,
        progress=progress,
        on_wait=on_wait,
        keep_newer=True,  # it may have come since
        candidate=candidate,
    )
    module = write_modulefiles(done.prefix, layout, on_wait=on_wait)
    return Installed(done, module, channel)


def fill_channel(
    stage: Stage,
    layout: Layout,
    channel: Path,
    lock: EnvLock,
    candidate: bool,
    on_wait: OnWait | None,
) -> None:
    """Bring the lock's packages into the root's channel, which has those of all its releases.

    The index names no packages of candidates: users see nothing of them.

    Raises:
        SourceError: a package in the bundle is not the locked one.
        MachineError: the channel cannot be written, or others could change it.
    """
    check_place(channel, "the channel")
    with explain_os_errors(channel):
        make_folder(channel)
    with waiting_lock(channel / ".lock", on_wait):
        present = dict(_present(channel, lock))
        missing = [p for p in lock.packages if p.file not in present]
        fresh = stage.folder / "channel"
        with explain_os_errors(fresh):
            present |= copy_packages(stage, missing, fresh)
            copy_sboms(stage, channel)
        write_atomic(channel / OF_BUNDLES, "")
        index_releases(layout, channel, present, lock, candidate=candidate)


def index_releases(
    layout: Layout,
    channel: Path,
    files: Mapping[str, Path],
    fresh: EnvLock | None = None,
    *,
    candidate: bool = False,
) -> None:
    """Make the root's channel name the packages of the releases that users see.

    Those of candidates, and of this user's clones, whose releases may be gone, stay beside. Call
    it under the channel's lock.

    Args:
        files: name → file of packages that it may not have yet.
        fresh: the lock of a release that is to be installed.
    """
    offered = [prefix for prefix in layout.releases() if not layout.is_candidate(prefix)]
    new = [fresh] if fresh else []
    fill(
        channel,
        ([] if candidate else new) + [EnvLock.load(prefix / LOCK_COPY) for prefix in offered],
        new + [EnvLock.load(prefix / LOCK_COPY) for prefix in (*layout.releases(), *clones())],
        files,
    )


def index_again(layout: Layout, on_wait: OnWait | None = None) -> None:
    """After another release became visible: do so where bundles have filled the root's channel."""
    channel = layout.root / "channel"
    if (channel / OF_BUNDLES).exists():
        with waiting_lock(channel / ".lock", on_wait):
            index_releases(layout, channel, {})


def _present(channel: Path, lock: EnvLock) -> Iterator[tuple[str, Path]]:
    """The lock's packages that the channel has already."""
    for package in lock.packages:
        path = channel / package.subdir / package.file
        if path.is_file() and sha256_file(path) == package.sha256:
            yield package.file, path.resolve()


def copy_packages(stage: Stage, packages: list[LockedPackage], target: Path) -> dict[str, Path]:
    """Copy packages out of the bundle; name of each file → where it is.

    Raises:
        SourceError: one is not in the bundle, or is not the locked one.
    """
    wanted = {f"channel/{p.subdir}/{p.file}": p for p in packages}
    found: dict[str, Path] = {}
    changed = "the bundle was changed while it was read: copy it again"
    try:
        for member, tar in _members(stage) if wanted else ():
            package = wanted.pop(member.name, None)
            if package is None:
                continue
            path = target / package.subdir / package.file
            make_folder(path.parent)
            if _copy(tar, member, path) != package.sha256:
                raise SourceError(f"{stage.file}: {package.file} is not the locked one", changed)
            found[package.file] = path
            if not wanted:
                break
    except tarfile.TarError as error:
        raise SourceError(f"{stage.file}: cannot be read: {error}", changed) from error
    if wanted:
        raise SourceError(f"{stage.file} has no {min(wanted)}", "copy the bundle again")
    return found


def copy_sboms(stage: Stage, channel: Path) -> None:
    """Copy the release's SBOMs out of the bundle into the channel."""
    for member, tar in _members(stage):
        folder, _, name = member.name.rpartition("/")
        source = tar.extractfile(member) if folder == f"channel/{SBOMS}" else None
        if source:
            write_atomic(channel / SBOMS / name, source.read())


def _members(stage: Stage) -> Iterator[tuple[tarfile.TarInfo, tarfile.TarFile]]:
    """The members of a bundle's channel, each with the archive to read it from."""
    with stage.file.open("rb") as stream:
        stream.seek(stage.channel_at)
        with tarfile.open(fileobj=stream, mode="r:") as tar:
            for member in tar:
                yield member, tar


def _copy(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> str:
    """Write a member's bytes to a new file; returns their sha256."""
    digest = hashlib.sha256()
    source = tar.extractfile(member)
    with path.open("xb") as target:
        while source and (block := source.read(BLOCK)):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


def smoke_quickly(settings: Settings, prefix: Path) -> None:
    """Run the quick part of the release's smoke suite on this machine.

    Raises:
        WorkError: a part of it failed.
        MachineError: the release has no suite.
    """
    command = smoke_command(settings, str(prefix), ["--local", "--quick"], os.environ)
    if subprocess.run(command.argv, env=command.environ, check=False).returncode:
        raise WorkError(
            f"{prefix} is installed, but its smoke suite failed",
            "see its report above, and run it again: ddlce smoke",
        )
