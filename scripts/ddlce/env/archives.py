"""What an environment's files must be, told by the locked archives alone.

Each archive is copied to a file without a name while it is hashed, and read from there. Files that
hold the prefix, and scripts that the installer writes, are made again as rattler makes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import tarfile
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

import requests
import zstandard
from conda_package_streaming.package_streaming import stream_conda_component
from urllib3.exceptions import HTTPError

from ddlce import jsontext
from ddlce.env.relink import Unusual, replace_strings
from ddlce.errors import SourceError, not_the_locked
from ddlce.model.envlock import LockedPackage
from ddlce.noarch import SITE, site_packages
from ddlce.safepath import is_inside

#: Archives read at once; decompression and hashing let other threads run.
PARALLEL = 4
#: Seconds for a connection, and between two pieces of an answer.
TIMEOUT = (10, 60)
BLOCK = 1 << 20
#: The longest `#!` line that rattler writes. SHEBANG of relink.py is our own choice.
RATTLERS_SHEBANG = 127

SCRIPT = """\
{first_line}
# -*- coding: utf-8 -*-
import re
import sys

from {module} import {first}

if __name__ == '__main__':
\tsys.argv[0] = re.sub(r'(-script\\.pyw?|\\.exe)?$', '', sys.argv[0])
\tsys.exit({function}())
"""


@dataclass(frozen=True)
class Wanted:
    """A file of an environment.

    Attributes:
        sha256: of its bytes; empty for a link.
        link: what a symbolic link says.
        executable: whether its owner may run it.
    """

    sha256: str = ""
    link: str = ""
    executable: bool = False


@dataclass
class PackageContent:
    """The files that one package brings to an environment.

    Attributes:
        stem: the package.
        files: path in the environment → what must be there.
        problem: why it is not known; then `files` is empty.
    """

    stem: str
    files: dict[str, Wanted] = field(default_factory=dict)
    problem: str = ""


def read_archives(
    packages: list[LockedPackage], channels: dict[str, str], prefix: Path
) -> list[PackageContent]:
    """What each package must have in the environment at `prefix`.

    Args:
        channels: name → address of each channel.
    """
    python = next((p for p in packages if p.name == "python"), None)
    version = ".".join(python.version.split(".")[:2]) if python else ""
    place = _Place(str(prefix), site_packages(p.model_dump() for p in packages), version)

    def read(package: LockedPackage) -> PackageContent:
        url = package.url(channels)
        try:
            with _copied(url, package.sha256) as archive:
                return PackageContent(package.stem, _Archive(package, archive, place).files())
        except SourceError as error:
            return PackageContent(package.stem, problem=error.message)
        except HTTPError as error:  # the answer was cut off: what requests does not see
            return PackageContent(package.stem, problem=f"{url}: cannot be fetched: {error}")
        except (OSError, ValueError, KeyError, TypeError, Unusual) as error:
            return PackageContent(package.stem, problem=f"{url}: cannot be read: {error}")
        except (tarfile.TarError, zstandard.ZstdError) as error:
            return PackageContent(package.stem, problem=f"{url}: cannot be read: {error}")

    # Largest first, so that no big one is left to run alone at the end.
    with ThreadPoolExecutor(PARALLEL) as pool:
        return list(pool.map(read, sorted(packages, key=lambda p: -p.size)))


@contextlib.contextmanager
def _copied(url: str, sha256: str) -> Iterator[IO[bytes]]:
    """A copy of an archive that has the locked sha256, and that nobody else can reach."""
    with tempfile.TemporaryFile() as copy, contextlib.ExitStack() as opened:
        stream: Any
        if urlsplit(url).scheme == "file":
            path = Path(unquote(urlsplit(url).path))
            if not path.is_file():
                raise SourceError(f"{path}: missing")
            stream, url = opened.enter_context(path.open("rb")), str(path)
        else:
            answer = opened.enter_context(requests.get(url, stream=True, timeout=TIMEOUT))
            if not answer.ok:
                raise SourceError(f"{url}: {answer.status_code} {answer.reason}")
            stream = answer.raw
        digest = hashlib.sha256()
        while block := stream.read(BLOCK):
            digest.update(block)
            copy.write(block)
        if digest.hexdigest() != sha256:
            raise SourceError(not_the_locked(url, sha256))
        yield copy


@dataclass(frozen=True)
class _Place:
    """Where packages go: the prefix, its site-packages, its Python's version (3.11)."""

    prefix: str
    site: str
    python: str


class _Archive:
    def __init__(self, package: LockedPackage, stream: IO[bytes], place: _Place) -> None:
        self.package = package
        self.stream = stream
        self.place = place

    def files(self) -> dict[str, Wanted]:
        """Path in the environment → what must be there."""
        info = {
            member.name: self._json(tar, member)
            for tar, member in self._members("info")
            if member.name in ("info/paths.json", "info/link.json")
        }
        entries = {entry["_path"]: entry for entry in info["info/paths.json"]["paths"]}
        noarch = info.get("info/link.json", {}).get("noarch") or {}
        python = noarch.get("type") == "python"
        found: dict[str, Wanted] = {}
        for tar, member in self._members("pkg"):
            entry = entries.get(member.name)
            if entry and not member.isdir():
                name = self._moved(member.name) if python else member.name
                found[name] = self._wanted(tar, member, entry)
        for text in noarch.get("entry_points") or () if python else ():
            name, wanted = self._script(text)
            found[name] = wanted
        outside = [name for name in found if not is_inside(name)]
        if outside:
            raise ValueError(f"{outside[0]} lies outside the environment")
        return found

    def _members(self, part: str) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
        self.stream.seek(0)
        for tar, member in stream_conda_component(self.package.file, self.stream, part):
            member.name = member.name.removeprefix("./")
            yield tar, member

    def _json(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
        stream = tar.extractfile(member)
        return jsontext.load(stream.read()) if stream else {}

    def _moved(self, name: str) -> str:
        if name.startswith(SITE):
            return f"{self.place.site}/{name.removeprefix(SITE)}"
        return re.sub("^python-scripts/", "bin/", name)

    def _wanted(
        self, tar: tarfile.TarFile, member: tarfile.TarInfo, entry: dict[str, Any]
    ) -> Wanted:
        if member.issym():
            return Wanted(link=member.linkname)
        stream = tar.extractfile(member)
        if stream is None:
            raise ValueError(f"{member.name} is no file")
        digest = hashlib.sha256()
        if entry.get("prefix_placeholder"):
            binary = entry.get("file_mode") == "binary"
            digest.update(self._with_prefix(stream.read(), entry["prefix_placeholder"], binary))
        else:
            while block := stream.read(BLOCK):
                digest.update(block)
        return Wanted(digest.hexdigest(), executable=bool(member.mode & 0o100))

    def _with_prefix(self, data: bytes, placeholder: str, binary: bool) -> bytes:
        old, new = placeholder.encode(), self.place.prefix.encode()
        if binary:
            return replace_strings(data, old, new)
        first, newline, rest = data.partition(b"\n")
        if first.startswith(b"#!"):
            first = _shebang(first, old, new)
            return first + newline + rest.replace(old, new)
        return data.replace(old, new)

    def _script(self, text: str) -> tuple[str, Wanted]:
        name, _, target = (part.strip() for part in text.partition("="))
        module, _, function = (part.strip() for part in target.partition(":"))
        first = f"#!/prefix/bin/python{self.place.python}".encode()
        script = SCRIPT.format(
            first_line=_shebang(first, b"/prefix", self.place.prefix.encode()).decode(),
            module=module,
            first=function.partition(".")[0],
            function=function,
        )
        return f"bin/{name}", Wanted(hashlib.sha256(script.encode()).hexdigest(), executable=True)


def _shebang(line: bytes, old: bytes, new: bytes) -> bytes:
    """A `#!` line with the prefix `new` for `old`, as rattler writes it.

    Where the line would be too long or have a space in its path, Python is started by the shell
    and any other program by env.
    """
    if old not in line:
        return line
    made = line.replace(old, new)
    if b" " in new:
        return _started(line).replace(old, new)
    return made if len(made) <= RATTLERS_SHEBANG else _started(made)


def _started(line: bytes) -> bytes:
    parts = re.match(rb"#![ \t]*(/(?:\\ |[^ \n\r\t])*)(.*)$", line)
    if not parts:
        return line
    path, options = parts.groups()
    name = path.rpartition(b"/")[2]
    if re.fullmatch(rb"python(\d+(\.\d+)?)?", name):
        return b"#!/bin/sh\n'''exec' \"%s\"%s \"$0\" \"$@\" #'''" % (path, options)
    return b"#!/usr/bin/env " + name + options
