"""One locked source by its own client, then by its upstream address if it has one."""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from threading import Event
from urllib.parse import quote

from packaging.utils import parse_wheel_filename

from ddlce.model.source import Source
from ddlce.model.target import Target
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.sources.apt import Apt
from ddlce.sources.client import DownloadError, OnBytes
from ddlce.sources.http import http_download
from ddlce.sources.pip import pip_download


def download(source: Source, folder: Path, cache: Path, report: OnBytes, stop: Event) -> Path:
    """Fetch a locked source with its own client, then by its upstream URL if it has one.

    Reads DDLCE_DEBIAN_ARCHIVE, an archive of Debian's for machines without apt. Who fetches checks
    the sha256, so the archive need not be trusted.

    Args:
        folder: for unfinished files; may hold those of a killed run.
        cache: where apt's lists are kept.

    Raises:
        DownloadError: neither way delivered; the reason names both.
    """
    first: DownloadError | None = None
    if source.client != "url":
        attempt = folder / f"{source.client}-{os.getpid()}-{time.monotonic_ns()}"
        attempt.mkdir()
        try:
            return _by_client(source, attempt, cache, report, stop)
        except DownloadError as error:
            if not source.url:
                raise
            first = error
    target = folder / source.file
    try:
        assert source.url is not None  # the model demands it
        http_download(source.url, target, report, stop)
    except DownloadError as error:
        if first is None:
            raise
        raise DownloadError(
            f"{first.reason}\n{error.reason}", again=first.again or error.again
        ) from error
    return target


def _by_client(source: Source, folder: Path, cache: Path, report: OnBytes, stop: Event) -> Path:
    if source.client in ("pypi-wheel", "pypi-sdist"):
        return pip_download(
            f"{source.package}=={source.version}",
            folder,
            report,
            stop,
            sdist=source.client == "pypi-sdist",
            sha256=source.sha256,
            target=Target(source.subdir or BUILD_PLATFORM, _python_of(source)),
        )
    archive = os.environ.get("DDLCE_DEBIAN_ARCHIVE", "").rstrip("/")
    if archive and source.pool:
        http_download(f"{archive}/{quote(source.pool)}", folder / source.file, report, stop)
        return folder / source.file
    debian = get_platform(source.subdir or BUILD_PLATFORM).debian
    apt = Apt(cache / "apt", debian, source.suite, source.area, stop)
    if source.pool:
        with contextlib.suppress(DownloadError):  # the lists know where it is now, if anywhere
            return apt.from_pool(source.pool, source.sha256, folder / source.file, report, stop)
    binary = source.client == "debian-binary"
    return apt.download(source.package, source.version, source.file, binary, folder, report, stop)


def _python_of(source: Source) -> str:
    """The Python of a locked wheel by the tags in its name, "3.11"; "" where any will do."""
    if source.client != "pypi-wheel":
        return ""
    tags = parse_wheel_filename(source.file)[3]
    found = (re.fullmatch(r"cp3(\d+)", tag.interpreter) for tag in tags)
    minors = sorted(int(match[1]) for match in found if match)
    return f"3.{minors[0]}" if minors else ""
