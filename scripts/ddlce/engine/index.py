"""A channel's index: repodata.json, its .zst, CEP 16 shards, and the files beside them.

All that clients read, the packages and each form of their index, is one generation: a hidden
folder, which is complete before anything points to it.

    channel/.generation-1a2b3c4d/linux-64/...    what clients get
    channel/.generation -> .generation-1a2b3c4d  switched by one rename
    channel/linux-64    -> .generation/linux-64  made once; so is channeldata.json

So a client that asks for two files gets those of two generations at worst, as from any web
server, but a killed run never leaves an index beside packages that it does not describe.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path

import zstandard
from pydantic import BaseModel, ConfigDict, ValidationError

from ddlce.audit.facts import read_metadata
from ddlce.engine.describe import CHANNELDATA, CURRENT, RUN_EXPORTS, describe_channel
from ddlce.engine.worker import certificates
from ddlce.errors import WorkError
from ddlce.files import (
    explain_os_errors,
    link_atomic,
    link_or_copy,
    make_folder,
    on_disk_at_end,
    sha256_file,
    write_atomic,
)

#: The link that says which generation clients see; the begin of each one's name.
GENERATION = ".generation"
#: What a generation has; the last file that is written into it.
DESCRIPTION = "generation.json"
SHARDS, SHARDS_INDEX = "shards", "repodata_shards.msgpack.zst"

#: Of each subdir.
REPODATA = (
    *(RUN_EXPORTS, f"{RUN_EXPORTS}.zst", "repodata.json", "repodata.json.zst"),
    *(SHARDS_INDEX, CURRENT, f"{CURRENT}.zst"),
)


class _Generation(BaseModel):
    """What a generation was made with.

    Attributes:
        packages: SUBDIR/FILE of each package that its index names.
        index: path → sha256 of each file of the index.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    packages: list[str]
    index: dict[str, str]


def index_channel(folder: Path) -> None:
    """Index the packages under `folder/<subdir>/` in place.

    For a folder that nobody reads yet; a published channel is changed by `publish_index`.

    Raises:
        OSError: a file cannot be written, or the disk is full.
        WorkError: any other failure of the engine.
    """
    from rattler.index.index import index_fs

    (folder / "noarch").mkdir(parents=True, exist_ok=True)
    os.environ.update(certificates())
    try:
        asyncio.run(index_fs(folder, write_zst=True, write_shards=True))
    except Exception as error:  # the engine's have one class for all kinds
        if code := re.search(r"os error (\d+)", str(error)):
            raise OSError(int(code[1]), os.strerror(int(code[1])), str(folder)) from error
        raise WorkError(f"cannot index {folder}: {' '.join(str(error).split())}") from error


def make_timeless(folder: Path) -> None:
    """Take the time of indexing out of the indexes in an indexed folder.

    They are then without shards, whose list has the time in it: clients take the whole one.
    """
    for subdir in folder.glob("[!.]*/"):
        shutil.rmtree(subdir / SHARDS, ignore_errors=True)
        (subdir / SHARDS_INDEX).unlink(missing_ok=True)
        index = json.loads((subdir / "repodata.json").read_bytes())
        for record in index["packages.conda"].values():
            record.pop("indexed_timestamp", None)
        text = json.dumps(index, sort_keys=True, separators=(",", ":")).encode()
        (subdir / "repodata.json").write_bytes(text)
        (subdir / "repodata.json.zst").write_bytes(zstandard.compress(text, 19))


def publish_index(
    channel: Path,
    packages: Iterable[tuple[str, Path]],
    kept: Iterable[tuple[str, Path]] = (),
    *,
    timeless: bool = False,
) -> list[str]:
    """Make the channel a new generation, whose index names exactly these packages.

    What is no package and no index in the channel's folders stays there, and so do folders of
    other platforms. Shards of the last index are kept until the next run: a client may still
    hold it. The last generation is, too, for who is reading it. Call it under the channel's lock.

    Args:
        packages: (subdir, path of the .conda file) of every package.
        kept: the same of files that stay beside them, in no index.
        timeless: make the same bytes whenever it is made, see `make_timeless`.

    Returns:
        The paths, relative to the channel, of packages that were added.

    Raises:
        WorkError: a package cannot be read; the channel is as it was.
    """
    wanted = {(subdir, path.name): path for subdir, path in packages}
    # Before the engine, which panics on a broken package without its name.
    metadata = {f"{s}/{name}": read_metadata(path) for (s, name), path in wanted.items()}
    with explain_os_errors(channel):
        make_folder(channel)
        if (channel / GENERATION).is_dir():
            _show(channel, channel / GENERATION)  # where a run was killed before it had done so
        remove_leftovers(channel)
        added = [f"{s}/{n}" for s, n in wanted if not (channel / s / n).exists()]
        fresh = channel / f"{GENERATION}-{secrets.token_hex(4)}"
        make_folder(fresh)
        try:
            with on_disk_at_end(fresh):
                _fill(fresh, channel, wanted, metadata, list(kept), timeless)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        link_atomic(channel / GENERATION, fresh.name)
        _show(channel, fresh)
    return added


def _fill(
    fresh: Path,
    channel: Path,
    wanted: dict[tuple[str, str], Path],
    metadata: dict[str, dict[str, object]],
    kept: list[tuple[str, Path]],
    timeless: bool,
) -> None:
    """Make a generation in the empty folder `fresh`."""
    subdirs = {subdir for subdir, _ in wanted} | {"noarch"}
    for subdir in subdirs:
        make_folder(fresh / subdir / SHARDS)
    for (subdir, name), path in wanted.items():
        _take(path, channel / subdir / name, fresh / subdir / name)
    index_channel(fresh)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(fresh / ".tmp")  # the engine's
    if timeless:
        make_timeless(fresh)
    describe_channel(fresh, metadata)
    files = [path for path in fresh.rglob("*") if path.is_file()]
    for path in files:
        path.chmod(0o644)
    for subdir, path in kept:
        _take(path, channel / subdir / path.name, fresh / subdir / path.name)
    for old in (path.parent for path in channel.glob("[!.]*/repodata.json")):
        if old.name in subdirs:
            _carry_over(old, fresh / old.name, _read_generation(channel))
        else:  # of another platform: as it is
            _copy_all(old, fresh / old.name)
    index = sorted(path for path in files if path.suffix != ".conda")
    described = _Generation(
        packages=sorted(f"{subdir}/{name}" for subdir, name in wanted),
        index={str(path.relative_to(fresh)): sha256_file(path) for path in index},
    )
    write_atomic(fresh / DESCRIPTION, described.model_dump_json(indent=1) + "\n")


def _take(path: Path, published: Path, target: Path) -> None:
    """Link a package; where the store is on another file system, the one that is there already."""
    there = published.is_file() and published.stat().st_dev != path.stat().st_dev
    link_or_copy(published if there and _is_same(published, path) else path, target)


def _carry_over(old: Path, new: Path, before: _Generation | None) -> None:
    """Copy the files of an old subdir that are no part of the index into the new generation."""
    for entry in old.iterdir():
        if entry.name == SHARDS:
            for shard in entry.iterdir():
                if before is None or f"{old.name}/{SHARDS}/{shard.name}" in before.index:
                    _copy(shard, new / SHARDS / shard.name)
        elif entry.is_dir() and not entry.is_symlink():
            _copy_all(entry, new / entry.name)
        elif entry.suffix != ".conda" and entry.name not in REPODATA:
            _copy(entry, new / entry.name)


def _copy_all(old: Path, new: Path) -> None:
    shutil.copytree(old, new, symlinks=True, copy_function=_copy, dirs_exist_ok=True)


def _copy(old: str | Path, new: str | Path) -> None:
    if Path(old).is_symlink():
        Path(new).symlink_to(Path(old).readlink())
    elif not Path(new).exists():
        link_or_copy(Path(old), Path(new))


def _show(channel: Path, generation: Path) -> None:
    """Make links of the names that clients ask for; they lead to the current generation."""
    for name in _names(generation):
        link = channel / name
        if not _is_shown(link):
            if link.is_dir() and not link.is_symlink():  # as channels were before
                link.rename(channel / f"{GENERATION}-{secrets.token_hex(4)}")
            link_atomic(link, f"{GENERATION}/{name}")


def _is_shown(link: Path) -> bool:
    return link.is_symlink() and str(link.readlink()) == f"{GENERATION}/{link.name}"


def _names(generation: Path) -> list[str]:
    """The names in a generation that clients ask for: its subdirs, and channeldata.json."""
    return [CHANNELDATA, *(path.name for path in generation.glob("[!.]*/"))]


def index_is_current(
    channel: Path, packages: Iterable[tuple[str, Path]], kept: Iterable[tuple[str, Path]] = ()
) -> bool:
    """Whether the channel holds exactly these files, with an index that was made from them.

    Each file of the index must have the bytes that it was made with.
    """
    wanted = {(subdir, path.name): path for subdir, path in packages}
    described = _read_generation(channel)
    if described is None or described.packages != sorted(f"{s}/{name}" for s, name in wanted):
        return False
    if not all(_is_shown(channel / name) for name in _names(channel / GENERATION)):
        return False
    for name, digest in described.index.items():
        path = channel / GENERATION / name
        if not path.is_file() or sha256_file(path) != digest:
            return False
    subdirs = {subdir for subdir, _ in wanted} | {"noarch"}
    present = {(p.parent.name, p.name): p for s in subdirs for p in (channel / s).glob("*.conda")}
    beside = {(subdir, path.name) for subdir, path in kept}
    if present.keys() != wanted.keys() | {key for key in beside if key[0] in subdirs}:
        return False
    return all(_is_same(present[key], path) for key, path in wanted.items())


def _is_same(one: Path, other: Path) -> bool:
    """Links to the store where the file system allows; copies elsewhere."""
    return one.samefile(other) or sha256_file(one) == sha256_file(other)


def _read_generation(channel: Path) -> _Generation | None:
    try:
        text = (channel / GENERATION / DESCRIPTION).read_text(encoding="utf-8")
        return _Generation.model_validate_json(text)
    except (OSError, UnicodeDecodeError, ValidationError):
        return None


def remove_leftovers(channel: Path) -> None:
    """Delete what no client sees any more but the generation they see; call under its lock."""
    seen = (channel / GENERATION).resolve()
    for folder in channel.glob(f"{GENERATION}-*"):
        if folder != seen and folder.resolve() != seen:
            shutil.rmtree(folder, ignore_errors=True)
    for folder in channel.glob(".staging-*"):  # as they were called before
        shutil.rmtree(folder, ignore_errors=True)
