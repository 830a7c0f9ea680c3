"""Making lock entries: from what a person asks for to files with digests, already in the store."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from threading import Event
from typing import get_args

from packaging.utils import parse_sdist_filename, parse_wheel_filename

from ddlce.engine.variants import target_of
from ddlce.errors import InputError, SourceError
from ddlce.files import sha256_file
from ddlce.locks import scratch
from ddlce.model.source import Client, Source, SourcesLock
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.settings import Settings
from ddlce.sources.apt import Apt, Remote
from ddlce.sources.client import DownloadError
from ddlce.sources.debmetadata import read_deb
from ddlce.sources.http import http_download
from ddlce.sources.pip import ANY, pip_download
from ddlce.sources.store import SourceStore
from ddlce.sources.wheelfile import read_wheel

#: What a request may start with, and the client it means.
PREFIXES: dict[str, Client] = {"pypi": "pypi-wheel", **{c: c for c in get_args(Client)}}

#: Files of a Debian source package that describe or sign the others.
DESCRIPTIONS = (".dsc", ".asc", ".sig")


@dataclass(frozen=True)
class Request:
    """What a person asks to lock: `pypi:numpy==2.3.4`, `debian-source:openssl`, …

    Attributes:
        client: who fetches it.
        package: the package, or the address for `url`.
        version: exact, or "" for the newest.
    """

    client: Client
    package: str
    version: str = ""

    @classmethod
    def parse(cls, text: str) -> Request:
        """Read a request.

        Raises:
            InputError: no such client, or no package.
        """
        prefix, colon, rest = text.partition(":")
        if not colon or prefix not in PREFIXES or not rest:
            raise InputError(
                f"{text!r} does not name a source",
                "write pypi:NAME[==VERSION], pypi-sdist:NAME[==VERSION], "
                "debian-source:NAME[=VERSION], debian-binary:NAME[=VERSION] or url:https://…",
            )
        client = PREFIXES[prefix]
        if client == "url":
            return cls(client, rest)
        if client.startswith("pypi"):
            name, equals, version = rest.partition("==")
            valid = re.fullmatch(r"[A-Za-z0-9][\w.-]*", name)
        else:
            name, equals, version = rest.partition("=")
            valid = re.fullmatch(r"[a-z0-9][a-z0-9.+-]*", name)
        if not valid or (equals and not version):
            raise InputError(
                f"{text!r}: {name!r} is not a package name"
                if not valid
                else f"{text!r}: no version after the equals sign"
            )
        return cls(client, name, version)


def request_for(url: str) -> tuple[Request, str]:
    """What a recipe's `source.url` asks for, and the file's name.

    Args:
        url: `pypi://NAME==VERSION/FILE`, `debian-source://PKG/FILE`,
            `debian-binary://PKG/FILE`, or an upstream address.

    Raises:
        InputError: none of these.
    """
    scheme, _, rest = url.partition("://")
    package, _, file = rest.partition("/")
    if scheme in ("http", "https"):
        return Request("url", url), url.rsplit("/", 1)[-1]
    if scheme == "pypi":
        scheme = "pypi-wheel" if file.endswith(".whl") else "pypi-sdist"
    if scheme not in PREFIXES or not file or "/" in file:
        raise InputError(
            f"source url {url!r} names no client and file",
            "write pypi://NAME==VERSION/FILE, debian-source://PKG/FILE, "
            "debian-binary://PKG/FILE, or the upstream address",
        )
    return Request.parse(f"{scheme}:{package}"), file


class Resolver:
    """Finds the file for a request, downloads it into the store and makes its lock entry.

    Args:
        subdir: the platform that arch-specific files are wanted for.
        suite: of Debian's, that packages are wanted from; "" for the machine's own.
        area: of that suite's archive, as "non-free"; "" for the machine's own.
    """

    def __init__(
        self,
        settings: Settings,
        subdir: str = BUILD_PLATFORM,
        report: Callable[[int], None] = lambda _: None,
        suite: str = "",
        area: str = "",
    ) -> None:
        self.platform = get_platform(subdir)
        self.settings = settings
        self.subdir = subdir
        self.report = report
        self.suite, self.area = suite, area
        self.store = SourceStore(settings.sources)

    def resolve(
        self,
        request: Request,
        *,
        files: str = "*",
        url: str | None = None,
        sha256: str | None = None,
    ) -> list[Source]:
        """Lock entries for a request; a Debian source package has several files.

        Args:
            files: which files of a Debian source package are wanted, as a shell pattern.
            url: the upstream project's address of the same bytes, a second way. For a Debian
                source package it is that of the upstream tarball.
            sha256: what the file must have; demanded for `url`. Of several files of one version
                that pip might choose, it takes this one.

        Raises:
            SourceError: nothing to be had, or other bytes than `sha256` or `url` serve.
            InputError: `url` without `sha256`.
        """
        with scratch(self.settings.sources, ".add-") as folder:
            try:
                if request.client == "url":
                    sources = [self._url(request.package, sha256, folder)]
                elif request.client.startswith("debian"):
                    sources = self._debian(request, files, folder)
                else:
                    sources = [self._pypi(request, folder, sha256)]
            except DownloadError as error:
                raise SourceError(f"{request.client}:{request.package}: {error.reason}") from error
            if url and request.client != "url":
                sources = [self._with_url(sources, url, folder), *sources[1:]]
            if sha256 and sha256 not in {source.sha256 for source in sources}:
                raise SourceError(
                    f"{request.client}:{request.package}: sha256 expected {sha256}, "
                    f"found {', '.join(source.sha256 for source in sources)}"
                )
            for source in sources:
                with self.store.writing(source, Event()):
                    if not self.store.intact(source):
                        self.store.add(source, folder / source.file)
        return sources

    def _pypi(self, request: Request, folder: Path, sha256: str | None) -> Source:
        sdist = request.client == "pypi-sdist"
        wanted = request.package + (f"=={request.version}" if request.version else "")
        target = ANY if sdist else target_of(self.settings.recipes, self.subdir)
        path = pip_download(
            *(wanted, folder, self.report, Event()),
            sdist=sdist,
            sha256=sha256,
            target=target,
        )
        if sdist:
            _, version = parse_sdist_filename(path.name)
            return _entry(request.client, request.package, str(version), path)
        name, _, _, tags = parse_wheel_filename(path.name)
        wheel = read_wheel(path)
        subdir = None if all(tag.platform == "any" for tag in tags) else self.subdir
        return _entry(request.client, str(name), wheel.version, path, subdir=subdir, wheel=wheel)

    def _debian(self, request: Request, files: str, folder: Path) -> list[Source]:
        apt = Apt(self.settings.cache / "apt", self.platform.debian, self.suite, self.area)
        binary = request.client == "debian-binary"
        version = request.version or apt.version(request.package, binary, files)
        remotes = [
            r
            for r in apt.files(request.package, version, binary)
            if not r.file.endswith(DESCRIPTIONS) and fnmatch(r.file, files)
        ]
        if not remotes:
            raise DownloadError(f"{version} has no file {files!r}", again=False)
        # The upstream tarball first: it is what a second address is for.
        ordered = sorted(remotes, key=lambda r: (".orig" not in r.file, r.file))
        return [self._debian_entry(request, version, remote, apt, folder) for remote in ordered]

    def _debian_entry(
        self, request: Request, version: str, remote: Remote, apt: Apt, folder: Path
    ) -> Source:
        binary = request.client == "debian-binary"
        name = request.package
        path = apt.download(name, version, remote.file, binary, folder, self.report, Event())
        # What is not for this machine is not installed by it, but made into packages.
        foreign = self.suite and self.subdir != BUILD_PLATFORM
        return _entry(
            request.client,
            name,
            version,
            path,
            subdir=None if _all_architectures(binary, remote) and not foreign else self.subdir,
            suite=self.suite,
            pool=remote.pool,
            deb=read_deb(path) if foreign else None,
        )

    def _url(self, url: str, sha256: str | None, folder: Path) -> Source:
        path = folder / (url.split("?")[0].rstrip("/").rsplit("/", 1)[-1] or "source")
        http_download(url, path, self.report, Event())
        if sha256 is None:
            raise InputError(
                f"url:{url} needs --sha256: nothing else says that these are the right bytes",
                f"what came now has {sha256_file(path)}; compare it with what upstream publishes",
            )
        stem = re.sub(r"\.(tar(\.\w+)?|tgz|zip)$", "", path.name)
        name, _, version = re.sub(r"[-_]v?(?=\d)", "=", stem, count=1).partition("=")
        return _entry("url", name, version, path, url=url)

    def _with_url(self, sources: list[Source], url: str, folder: Path) -> Source:
        """The first source with a second way, once that way has proved to serve its bytes."""
        path = folder / ".second-way"
        http_download(url, path, self.report, Event())
        found = sha256_file(path)
        if found != sources[0].sha256:
            raise SourceError(
                f"{url} does not serve the bytes of {sources[0].file}: "
                f"sha256 expected {sources[0].sha256}, found {found}",
                "give the address of exactly that file, or none",
            )
        return sources[0].model_copy(update={"url": url})


def merged(lock: SourcesLock, new: list[Source], keep_versions: bool = False) -> SourcesLock:
    """The lock with new entries, in the place of other versions for the same platform.

    Args:
        keep_versions: let other versions stand; an entry of the same bytes is always replaced.
    """
    digests = {source.sha256 for source in new}
    kept = [
        old
        for old in lock.sources
        if old.sha256 not in digests
        and (keep_versions or not any(_replaces(source, old) for source in new))
    ]
    return SourcesLock(sources=[*kept, *new])


def _replaces(new: Source, old: Source) -> bool:
    if (new.client, new.package, new.suite) != (old.client, old.package, old.suite):
        return False
    if None not in (new.subdir, old.subdir) and new.subdir != old.subdir:
        return False
    # Two files of one version stand side by side: a Debian source package has several.
    return new.version != old.version or new.file == old.file


def _entry(client: Client, package: str, version: str, path: Path, **more: object) -> Source:
    return Source.model_validate(
        {
            "client": client,
            "package": package,
            "version": version,
            "file": path.name,
            "size": path.stat().st_size,
            "sha256": sha256_file(path),
            **more,
        }
    )


def _all_architectures(binary: bool, remote: Remote) -> bool:
    return not binary or remote.file.endswith("_all.deb")
