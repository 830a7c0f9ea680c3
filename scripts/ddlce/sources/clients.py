"""The clients: pip, apt and HTTP, each fetching one locked source into a folder.

A client leaves the file in the folder that it is given and returns its path; checking the bytes
is the store's. `DownloadError` says whether trying again can help.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

import requests
from packaging.utils import parse_wheel_filename

from ddlce.errors import MachineError
from ddlce.model.source import Source
from ddlce.platforms import BUILD_PLATFORM, get_platform
from ddlce.programs import own_python

CHUNK = 1 << 16
TIMEOUT_S = 60
POLL_S = 0.1


class DownloadError(Exception):
    """A client did not deliver.

    Args:
        reason: for the user, one or two lines.
        again: whether the same call may succeed later (the network, not the request).
    """

    def __init__(self, reason: str, again: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.again = again


class Cancelled(Exception):
    """Another download failed for good, or the user interrupted."""


#: Called with the bytes that have arrived so far.
Report = Callable[[int], None]


def run_client(
    command: Sequence[str],
    folder: Path,
    report: Report,
    stop: Event,
    env: dict[str, str] | None = None,
) -> str:
    """Run a client that writes below `folder`; returns what it printed.

    Progress is the size of what it has written, which no client reports in a stable way.

    Raises:
        DownloadError: the client failed; the reason is the end of its output.
        Cancelled: `stop` was set; the client has been ended.
        MachineError: the program is missing, or the disk is full.
    """
    log = folder / ".log"
    with log.open("wb") as stream:
        try:
            process = subprocess.Popen(
                command, stdout=stream, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=env
            )
        except FileNotFoundError:
            raise MachineError(f"{command[0]}: no such program on this machine") from None
        try:
            while process.poll() is None:
                if stop.wait(POLL_S):
                    raise Cancelled
                report(size_below(folder))
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait()
    text = log.read_text(errors="replace")
    log.unlink()
    if process.returncode:
        if "No space left on device" in text:
            raise MachineError(
                f"no space left while downloading to {folder}",
                "free some space, or set DDLCE_CACHE to another file system",
            )
        raise DownloadError(tail(text))
    return text


def tail(text: str, lines: int = 4) -> str:
    """The last lines of a client's output that say something."""
    wanted = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in wanted if line.lower().startswith(("error", "e:", "err:"))]
    return "\n".join((errors or wanted)[-lines:]) or "the client failed and printed nothing"


def size_below(folder: Path) -> int:
    """Bytes of all files below a folder that another process may be changing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_size  # noqa: PTH118
            except OSError:
                continue
    return total


def pip_download(
    requirement: str,
    folder: Path,
    report: Report,
    stop: Event,
    *,
    sdist: bool = False,
    sha256: str | None = None,
    subdir: str = BUILD_PLATFORM,
    python: str = "",
) -> Path:
    """Let pip find one file, with the machine's own pip configuration.

    Args:
        requirement: `name==version`, or a name for the newest.
        folder: an empty folder.
        report: progress.
        stop: ends the download when set.
        sdist: take the source distribution instead of a wheel.
        sha256: the locked digest: pip then takes only that file.
        subdir: the platform whose wheels are wanted.
        python: the minor version that they are for, "3.11"; without it, that of this process.

    Raises:
        DownloadError: pip could not deliver.
        MachineError: this Python has no pip.
    """
    temporary = folder / ".tmp"
    temporary.mkdir(exist_ok=True)
    wanted = folder / ".requirement.txt"
    wanted.write_text(requirement + (f" --hash=sha256:{sha256}" if sha256 else "") + "\n")
    # A locked file was chosen already; its hash says all.
    any_python = ["--ignore-requires-python"] if sha256 else []
    # Of this package alone: to read its metadata pip may build with Cython, whose wheel will do.
    kind = ["--no-binary", requirement.partition("==")[0]] if sdist else ["--only-binary=:all:"]
    command = [
        *own_python("-m", "pip", "download", "--quiet", "--no-input", "--no-deps"),
        *("--no-cache-dir", "--dest", str(folder), "--requirement", str(wanted)),
        *kind,
        *any_python,
        *([] if sdist else _wheel_target(subdir, python)),
    ]
    env = {**os.environ, "TMPDIR": str(temporary), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    try:
        run_client(command, folder, report, stop, env)
    except DownloadError as error:
        if "No module named pip" in error.reason:
            raise MachineError(
                f"{sys.executable} has no pip, and wheels are fetched with it",
                f"{sys.executable} -m ensurepip",
            ) from None
        if "DO NOT MATCH THE HASHES" in error.reason:
            raise DownloadError(
                f"what pip found for {requirement} is not the locked file", again=False
            ) from None
        gone = "No matching distribution found" in error.reason
        raise DownloadError(error.reason, again=not gone) from None
    files = [path for path in folder.iterdir() if not path.name.startswith(".")]
    if len(files) != 1:
        raise DownloadError(f"pip delivered {len(files)} files for {requirement}", again=False)
    return files[0]


def _wheel_target(subdir: str, python: str) -> list[str]:
    """pip's options for a target's wheels, whatever Python runs pip.

    Newest glibc last: of two equally good wheels pip takes the first platform's, and the lower
    glibc floor serves more machines.
    """
    row = get_platform(subdir)
    tags = [
        *row.old_wheel_tags,
        "manylinux2014",
        *(f"manylinux_2_{n}" for n in range(5, 40)),
        "linux",
    ]
    platforms = [option for tag in tags for option in ("--platform", f"{tag}_{row.machine}")]
    version = ["--python-version", python] if python else []
    return [*version, "--implementation", "cp", *platforms]


def http_download(url: str, target: Path, report: Report, stop: Event) -> None:
    """Fetch a URL into `target`, going on where an earlier try ended.

    Raises:
        DownloadError: no connection, an HTTP error, or fewer bytes than announced.
        Cancelled: `stop` was set; what arrived is kept for the next try.
    """
    have = target.stat().st_size if target.exists() else 0
    headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
    try:
        with requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as response:
            if response.status_code == requests.codes.requested_range_not_satisfiable:
                target.unlink()
                raise DownloadError(f"{url}: the server has fewer bytes than are here already")
            if not response.ok:
                again = response.status_code >= 500 or response.status_code == 429
                raise DownloadError(f"{url}: HTTP {response.status_code}", again=again)
            if response.status_code != requests.codes.partial_content:
                have = 0
            expected = have + int(response.headers.get("Content-Length") or 0)
            with target.open("ab" if have else "wb") as stream:
                for chunk in response.iter_content(CHUNK):
                    have += stream.write(chunk)
                    report(have)
                    if stop.is_set():
                        raise Cancelled
            if have < expected:
                raise DownloadError(f"{url}: the connection ended after {have} of {expected} bytes")
    except requests.RequestException as error:
        bad = isinstance(error, requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema)
        raise DownloadError(f"{url}: {_reason(error)}", again=not bad) from error


def _reason(error: requests.RequestException) -> str:
    """requests wraps its causes three deep; the innermost sentence is what a person needs."""
    if isinstance(error, requests.Timeout):
        return f"no answer within {TIMEOUT_S} s"
    return str(error).rsplit(": ", 1)[-1].strip("')> ") or type(error).__name__


def download(source: Source, folder: Path, cache: Path, report: Report, stop: Event) -> Path:
    """Fetch a locked source with its own client, then by its upstream URL if it has one.

    Args:
        source: what to fetch.
        folder: for unfinished files; may hold those of a killed run.
        cache: where apt's lists are kept.
        report: progress.
        stop: ends the download when set.

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


def _by_client(source: Source, folder: Path, cache: Path, report: Report, stop: Event) -> Path:
    from ddlce.sources.apt import Apt

    if source.client in ("pypi-wheel", "pypi-sdist"):
        return pip_download(
            f"{source.package}=={source.version}",
            folder,
            report,
            stop,
            sdist=source.client == "pypi-sdist",
            sha256=source.sha256,
            subdir=source.subdir or BUILD_PLATFORM,
            python=_python_of(source),
        )
    apt = Apt(cache / "apt", get_platform(source.subdir or BUILD_PLATFORM).debian, source.suite)
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
