"""Indexing a channel folder: repodata.json, its .zst, CEP 16 shards, and the files beside them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ddlce.audit.facts import read_metadata
from ddlce.engine.describe import CHANNELDATA, CURRENT, RUN_EXPORTS, describe_channel
from ddlce.files import explain_os_errors, link_or_copy, make_folder, sha256_file

#: Of each subdir, in the order in which they are replaced: no index names a package of which
#: the others do not know.
REPODATA = (
    *(RUN_EXPORTS, f"{RUN_EXPORTS}.zst", "repodata.json", "repodata.json.zst"),
    *("repodata_shards.msgpack.zst", CURRENT, f"{CURRENT}.zst"),
)


def index_channel(folder: Path) -> None:
    """Index the packages under `folder/<subdir>/` in place.

    For a folder that nobody reads yet; a published channel is changed by `publish_index`.
    """
    from rattler.index.index import index_fs

    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    asyncio.run(index_fs(folder, write_zst=True, write_shards=True))


def publish_index(
    channel: Path, packages: Iterable[tuple[str, Path]], kept: Iterable[tuple[str, Path]] = ()
) -> list[str]:
    """Make the channel's index name exactly these packages, readable at every moment.

    The new index is made in a folder beside the old one. Packages and shards, which nothing
    refers to yet, are moved in first, then each repodata file by one rename, and only then are
    the packages removed that the index does not name any more. Shards that the new index does
    not name are kept until the next run: a client may still hold the old index.

    Args:
        channel: the channel's folder.
        packages: (subdir, path of the .conda file) of every package.
        kept: the same of files that stay beside them, in no index.

    Returns:
        The paths, relative to the channel, of packages that were added.

    Raises:
        WorkError: a package cannot be read; the channel is as it was.
    """
    wanted: dict[str, dict[str, Path]] = {}
    for subdir, path in packages:
        wanted.setdefault(subdir, {})[path.name] = path
    wanted.setdefault("noarch", {})
    beside = set(kept)
    added: list[str] = []
    # Before the engine, which panics on a broken package without its name.
    metadata = {
        f"{subdir}/{name}": read_metadata(path)
        for subdir, files in wanted.items()
        for name, path in files.items()
    }
    with explain_os_errors(channel):
        make_folder(channel)
        staging = Path(tempfile.mkdtemp(dir=channel, prefix=".staging-"))
        try:
            for subdir, files in wanted.items():
                for name, path in files.items():
                    link_or_copy(path, staging / subdir / name)
            index_channel(staging)
            describe_channel(staging, metadata)
            for subdir, path in beside:
                if not (channel / subdir / path.name).is_file():
                    link_or_copy(path, channel / subdir / path.name)
            for subdir, files in wanted.items():
                names = {path.name for where, path in beside if where == subdir}
                added += _publish_subdir(staging / subdir, channel / subdir, files, names)
            _publish(staging / CHANNELDATA, channel / CHANNELDATA)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    return added


def _publish_subdir(
    staged: Path, target: Path, packages: dict[str, Path], kept: set[str]
) -> list[str]:
    make_folder(target)
    added = []
    for name, path in packages.items():
        current = target / name
        # A reused name with other bytes (a store that was emptied in between) is replaced.
        if not (current.exists() and current.samefile(path)):
            if not current.exists():
                added.append(f"{target.name}/{name}")
            (staged / name).chmod(0o644)
            os.replace(staged / name, current)  # noqa: PTH105 - rename over an existing file
    shards = staged / "shards"
    if shards.is_dir():
        make_folder(target / "shards")
        for shard in shards.iterdir():
            shard.chmod(0o644)
            shard.replace(target / "shards" / shard.name)
    for name in REPODATA:
        _publish(staged / name, target / name)
    for old in target.glob("*.conda"):
        if old.name not in packages and old.name not in kept:
            old.unlink()
    return added


def _publish(staged: Path, target: Path) -> None:
    staged.chmod(0o644)
    staged.replace(target)


def index_is_current(
    channel: Path, packages: Iterable[tuple[str, Path]], kept: Iterable[tuple[str, Path]] = ()
) -> bool:
    """Whether the channel holds exactly these files, and its index names those not only kept."""
    wanted = {(subdir, path.name): path for subdir, path in packages}
    subdirs = {subdir for subdir, _ in wanted} | {"noarch"}
    files = [channel / s / name for s in subdirs for name in REPODATA]
    if not all(file.is_file() for file in (*files, channel / CHANNELDATA)):
        return False
    present = {(p.parent.name, p.name): p for s in subdirs for p in (channel / s).glob("*.conda")}
    beside = {(subdir, path.name) for subdir, path in kept}
    if present.keys() != wanted.keys() | {key for key in beside if key[0] in subdirs}:
        return False
    indexed = {
        (subdir, name)
        for subdir in subdirs
        for name in json.loads((channel / subdir / "repodata.json").read_text())["packages.conda"]
    }
    # Links to the store where the file system allows; copies elsewhere.
    same = all(
        present[k].samefile(p) or sha256_file(present[k]) == sha256_file(p)
        for k, p in wanted.items()
    )
    return indexed == wanted.keys() and same


def remove_leftovers(channel: Path) -> None:
    """Delete staging folders that a killed run left in the channel; call under its lock."""
    for folder in channel.glob(".staging-*"):
        shutil.rmtree(folder, ignore_errors=True)
