"""How files are called in the metadata, and which files of a tree and its channel are signed."""

from __future__ import annotations

from pathlib import Path

from ddlce.engine.describe import CHANNELDATA
from ddlce.errors import InputError
from ddlce.lock import all_locks
from ddlce.model.channel import SBOMS
from ddlce.model.envlock import EnvLock
from ddlce.settings import Settings, release_folder

#: The folder of the metadata in a channel.
METADATA = "metadata"

#: In it: a root that more keys must sign.
DRAFT = "root.draft.json"

#: How the names of locks end.
LOCK = ".lock"


def release_name(env: str, release: str, digest: str, platform: str) -> str:
    """`ddl-ce-2026.11-0123abcd-linux-64`; the digest is that of the lock."""
    return f"{env}-{release_folder(release, digest)}-{platform}"


def lock_name(lock: EnvLock) -> str:
    """`ddl-ce-2026.11-0123abcd-linux-64.lock`: two releases of one version have names of their own.

    Whoever has installed the first one may clone it when the second one is signed, too.
    """
    return release_name(lock.env, lock.release, lock.digest, lock.platform) + LOCK


def signed_files(settings: Settings, channel: Path) -> dict[str, Path]:
    """Name in the metadata → file: locks, `sources.lock`, SBOMs, and the channel's index.

    Raises:
        InputError: there is no tree, or a lock is not as `ddlce lock` writes it.
    """
    found: dict[str, Path] = {}
    for path in all_locks(settings):
        lock = EnvLock.load(path)
        if lock.to_yaml() != path.read_text("utf-8"):
            raise InputError(f"{path}: changed by hand", "make it again: ddlce lock")
        found[lock_name(lock)] = path
    for path in (settings.sources_lock, *sorted((channel / SBOMS).glob("[!.]*.json"))):
        if path.is_file():
            found[path.name] = path
    return found | index_files(channel)


def index_files(channel: Path) -> dict[str, Path]:
    """Name in the metadata → file of a channel's index."""
    paths = sorted([*channel.glob("[!.]*/*repodata*"), channel / CHANNELDATA])
    return {str(path.relative_to(channel)): path for path in paths if path.is_file()}
