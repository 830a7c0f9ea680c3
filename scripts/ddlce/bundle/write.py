"""Writes a bundle: the same bytes for the same lock, packages and version of `ddlce`."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

from ddlce.audit.facts import read_metadata
from ddlce.bundle.boot import boot_files, regular
from ddlce.bundle.description import (
    CHANNEL,
    HEADER,
    RELEASE,
    TRAILER,
    Bundle,
    Description,
    describe,
)
from ddlce.engine.describe import describe_channel
from ddlce.engine.index import index_channel, make_timeless
from ddlce.errors import InputError
from ddlce.files import (
    explain_os_errors,
    link_or_copy,
    make_folder,
    not_yet_on_disk,
    partial_name,
    rename_synced,
    write_atomic,
)
from ddlce.locks import locked
from ddlce.model.channel import SBOMS
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.platforms import PLATFORMS
from ddlce.settings import DEFAULT_ROOT, Settings, release_folder
from ddlce.sharedchannel import locked_file

#: Bytes that a file takes beyond its own, in folders, records and half-filled blocks.
PER_FILE = 4096

#: After the script, up to the first part: an error of syntax, whether a quote, a substitution or
#: nothing is open. So a script in which one byte was changed never runs on into the packages.
STOP = b")\n'\n)\n\"\n)\n`\n)\n}\n)\n"

BLOCK = 1 << 20


def write_bundle(
    settings: Settings,
    lock: EnvLock,
    channel: Path,
    folder: Path,
    sboms: Mapping[str, str] = MappingProxyType({}),
) -> Bundle:
    """Write `ENV-RELEASE-PLATFORM.run` into a folder.

    Args:
        settings: the tree with the condarc template.
        channel: the folder with the locked packages.
        sboms: name → text, for the channel in it.

    Raises:
        InputError: a package is of another channel, or the lock has no `ddlce` to install with.
        SourceError: the channel has not all of the packages, or another one of that name.
        MachineError: the file cannot be written.
    """
    said = describe(lock)
    packages = [(package, locked_file(package, channel)) for package in lock.packages]
    path = folder / f"{lock.env}-{lock.release}-{lock.platform}.run"
    with explain_os_errors(path):
        make_folder(folder)
        with locked(folder / f".{path.name}.lock", passing=True):
            partial = partial_name(path)
            partial.unlink(missing_ok=True)
            try:
                with partial.open("x+b") as stream:
                    sha256 = _write(stream, settings, lock, said, packages, folder, sboms)
                    os.fchmod(stream.fileno(), 0o755)
                    stream.flush()
                    os.fsync(stream.fileno())
                rename_synced(partial, path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise
    total = sum(package.size for package in lock.packages)
    return Bundle(str(path), path.stat().st_size, sha256, len(packages), total)


def _write(
    stream: IO[bytes],
    settings: Settings,
    lock: EnvLock,
    said: Description,
    packages: list[tuple[LockedPackage, Path]],
    folder: Path,
    sboms: Mapping[str, str],
) -> str:
    """Write all of it; returns the sha256 that is its last line."""
    stream.seek(HEADER)
    with _tar(stream) as tar:
        texts = {
            "bundle.json": said.model_dump_json(indent=1) + "\n",
            "lock": lock.to_yaml(),
            "channel/condarc.j2": (settings.tree / "channel" / "condarc.j2").read_text("utf-8"),
        }
        for name, text in texts.items():
            data = text.encode()
            tar.addfile(regular(f"{RELEASE}/{name}", len(data)), BytesIO(data))
        for info, data in boot_files(said, packages):
            tar.addfile(info, BytesIO(data))
    first = stream.tell() - HEADER
    with _tar(stream) as tar, _indexed(packages, folder, sboms) as channel:
        for path in sorted(p for p in channel.rglob("*") if p.is_file()):
            with path.open("rb") as content:
                name = f"{CHANNEL}/{path.relative_to(channel)}"
                tar.addfile(regular(name, path.stat().st_size), content)
    size = stream.tell() + TRAILER
    stream.seek(0)
    stream.write(_header(lock, first, size, _needed(packages)))
    sha256 = _hash_all(stream)
    stream.write(f"{sha256}\n".encode())
    return sha256


@contextlib.contextmanager
def _tar(stream: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as tar:
        yield tar


@contextlib.contextmanager
def _indexed(
    packages: Iterable[tuple[LockedPackage, Path]], beside: Path, sboms: Mapping[str, str]
) -> Iterator[Path]:
    """A folder for a while that is a channel of just these packages."""
    with tempfile.TemporaryDirectory(dir=beside, prefix=".bundle-") as made:
        folder = Path(made) / CHANNEL
        metadata: dict[str, dict[str, Any]] = {}
        with not_yet_on_disk():
            for package, path in packages:
                link_or_copy(path, folder / package.subdir / package.file)
                metadata[f"{package.subdir}/{package.file}"] = read_metadata(path)
        index_channel(folder)
        shutil.rmtree(folder / ".tmp", ignore_errors=True)  # the engine's
        make_timeless(folder)
        describe_channel(folder, metadata)
        with not_yet_on_disk():
            for name, text in sboms.items():
                write_atomic(folder / SBOMS / name, text)
        yield folder


def _needed(packages: Iterable[tuple[LockedPackage, Path]]) -> int:
    """KiB that an installation takes: packages twice, unpacked and not, and bytecode."""
    total = 0
    for package, path in packages:
        total += 2 * package.size
        for entry in read_metadata(path)["paths"]["paths"]:
            size = entry.get("size_in_bytes") or 0
            bytecode = size if entry["_path"].endswith(".py") else 0
            total += size + bytecode + PER_FILE
    return total // 1024


def _header(lock: EnvLock, first: int, size: int, needed: int) -> bytes:
    """The script, with the values of this file before it, padded with line breaks."""
    values = {
        "title": f"{lock.env} {lock.release}",
        "env": lock.env,
        "default_root": DEFAULT_ROOT.removeprefix("~/"),
        "prefix": release_folder(lock.release, lock.digest),
        "platform": lock.platform,
        "machine": PLATFORMS[lock.platform].machine,
        "glibc": lock.virtual_packages.get("__glibc", "0.0"),
        "count": len(lock.packages),
        "start": HEADER,
        "first": first,
        "size": size,
        "need": needed,
        "packages": "\n".join(f"{p.name} {p.version} {p.build}" for p in lock.packages),
    }
    lines = [f"{name}='{value}'" for name, value in values.items()]
    script = files("ddlce.bundle").joinpath("header.sh").read_text("utf-8")
    # In braces, so that sh reads all of it before it does any.
    text = "\n".join(["#!/bin/sh", "{", *lines, script, "}", ""]).encode()
    room = HEADER - len(text)
    if room < len(STOP):
        raise InputError(
            f"the lock of {lock.env} is too long for a bundle", "divide the environment"
        )
    return text + (STOP * (room // len(STOP))).ljust(room, b"\n")


def _hash_all(stream: IO[bytes]) -> str:
    """The sha256 of what is written; the stream is at its end afterwards."""
    stream.flush()
    stream.seek(0)
    digest = hashlib.sha256()
    while block := stream.read(BLOCK):
        digest.update(block)
    return digest.hexdigest()
