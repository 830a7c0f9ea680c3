"""Debian's packages through a private apt: the machine's own sources, with `deb-src` added.

The machine's apt is read, never changed: lists, caches and configuration are in our own folder.

The package python-debian is not used: it is under the GPL, and ddlce is under the Apache licence.
dpkg, which is wherever apt is, compares versions, and Python's own parser reads the fields.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import platform
import re
import subprocess
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import Parser
from pathlib import Path
from threading import Event

from ddlce.errors import MachineError
from ddlce.files import write_atomic
from ddlce.model.source import ROLLING
from ddlce.sources.client import BACKOFF_S, DownloadError, OnBytes, locked_until, run_client

ETC = Path("/etc/apt")
HELPER = "/usr/lib/apt/apt-helper"
ARCHIVE = re.compile(r"(?<!\S)(?:https?|file):/\S+")
#: The archive of security updates, in its address or its suite.
SECURITY = re.compile(r"-security(?![\w-])")
URI_LINE = re.compile(r"^'(?P<uri>[^']+)' (?P<file>\S+) (?P<size>\d+) (?P<hash>\S+)$")


@dataclass(frozen=True)
class Remote:
    """One file of a Debian package, as apt's lists announce it."""

    uri: str
    file: str
    size: int
    digest: str

    @property
    def pool(self) -> str:
        """Its path in Debian's archive, or "" where the mirror has no pool."""
        found = re.search(r"/(pool/.+)$", self.uri)
        return urllib.parse.unquote(found[1]) if found else ""


@dataclass(frozen=True)
class Offer:
    """A version of a Debian package that an archive has.

    Attributes:
        security: whether the archive is that of security updates.
    """

    version: str
    security: bool


class Apt:
    """A private apt for one Debian architecture.

    Args:
        folder: keeps the lists and configuration of all architectures.
        architecture: Debian's name, e.g. "amd64".
        suite: of Debian's, whose packages are wanted; "" for the machine's sources.
        area: of the suite's archive, "contrib" or "non-free"; "" for the machine's.
    """

    def __init__(
        self,
        folder: Path,
        architecture: str,
        suite: str = "",
        area: str = "",
        stop: Event | None = None,
    ) -> None:
        self.stop = stop or Event()
        self.home = folder / "-".join(part for part in (suite, area, architecture) if part)
        self.architecture = architecture
        self.suite = suite
        self.area = area
        self._known: dict[tuple[str, str, bool], list[Remote]] = {}

    def files(self, package: str, version: str, binary: bool) -> list[Remote]:
        """The files of a package version, from the lists.

        Args:
            package: source or binary package.
            version: exact, or "" for the one that apt prefers.

        Raises:
            DownloadError: the lists do not have it.
        """
        verb = ["download"] if binary else ["source", "--only-source"]
        spec = f"{package}={version}" if version else package
        if known := self._known.get((package, version, binary)):
            return known
        self._prepare()
        for fresh in (False, True):  # the lists of an earlier run may be too old
            if fresh:
                self._update()
            try:
                text = self._get(*verb, "--print-uris", spec)
            except DownloadError as error:
                missing = error
                continue
            found = [Remote(*_fields(m)) for m in map(URI_LINE.match, text.splitlines()) if m]
            if found:
                self._known[package, version, binary] = found
                return found
            missing = DownloadError(f"apt names no file for {spec}", again=False)
        raise missing

    def version(self, package: str, binary: bool, pattern: str = "*") -> str:
        """The newest version with a file of this name.

        Args:
            package: source or binary package.
            pattern: shell pattern of the file's name.

        Raises:
            DownloadError: no such package, or no version with such a file.
        """
        self._prepare()
        show = ["show"] if binary else ["showsrc", "--only-source"]
        for fresh in (False, True):  # the lists of an earlier run may be too old
            if fresh:
                self._update()
            try:
                text = self._run("apt-cache", *show, package)
            except DownloadError:
                continue
            versions = [
                record["Version"]
                for record in map(Parser().parsestr, re.split(r"\n\n+", text))
                if record["Version"] and fnmatch.filter(_names(record), pattern)
            ]
            if versions:
                return functools.reduce(newer, versions)
        what = f"a version of {package} with a file {pattern}" if pattern != "*" else package
        raise DownloadError(f"the Debian mirror does not have {what}", again=False)

    def offers(self, packages: Sequence[str], binary: bool) -> dict[str, list[Offer]]:
        """The versions of some packages, by the archives' lists as they are now.

        Raises:
            DownloadError: the lists cannot be had.
        """
        self._configure()
        self._update()
        found: dict[str, list[Offer]] = {}
        for line in self._run("apt-cache", "madison", *packages).splitlines():
            name, version, archive = (cell.strip() for cell in line.split("|"))
            if archive.endswith("Packages") == binary:
                found.setdefault(name, []).append(Offer(version, bool(SECURITY.search(archive))))
        return found

    def download(
        self,
        package: str,
        version: str,
        file: str,
        binary: bool,
        folder: Path,
        report: OnBytes,
        stop: Event,
    ) -> Path:
        """Fetch one file of a package version into `folder`.

        Raises:
            DownloadError: the mirror does not have this version any more, or the network failed.
        """
        try:
            remotes = self.files(package, version, binary)
        except DownloadError as error:
            if error.again:
                raise
            raise DownloadError(
                f"the Debian mirror has no {package} {version} (any more)", again=False
            ) from error
        for remote in remotes:
            if remote.file == file:
                target = folder / file
                command = [HELPER, *self._options(), "download-file", remote.uri, str(target)]
                run_client([*command, remote.digest], folder, report, stop, _environment())
                return target
        raise DownloadError(
            f"{package} {version} on the Debian mirror has no file {file}", again=False
        )

    def from_pool(self, pool: str, sha256: str, target: Path, report: OnBytes, stop: Event) -> Path:
        """Fetch a file from where it was in the archive when it was locked.

        Needs no lists, so that it works, too, while a mirror's lists do not fit together.

        Args:
            pool: the path in the archive.

        Raises:
            DownloadError: none of the machine's archives has it there.
        """
        self._configure()
        missing = DownloadError(f"no archive of this machine's apt for {pool}", again=False)
        for archive in self._archives():
            uri = f"{archive}/{urllib.parse.quote(pool)}"
            command = [HELPER, *self._options(), "download-file", uri, str(target)]
            digest = f"SHA256:{sha256}"
            try:
                run_client([*command, digest], target.parent, report, stop, _environment())
            except DownloadError as error:
                missing = error
            else:
                return target
        raise missing

    def _archives(self) -> list[str]:
        """The addresses in the sources, each once, in their order."""
        texts = [path.read_text() for path in sorted((self.home / "sources.list.d").iterdir())]
        lines = [line for text in texts for line in text.splitlines() if line[:1] != "#"]
        found = ARCHIVE.findall("\n".join(lines))
        return list(dict.fromkeys(uri.rstrip("/") for uri in found))

    def _prepare(self) -> None:
        """Write the private configuration; download the lists if there are none."""
        self._configure()
        if not any((self.home / "lists").glob("*Sources*")):
            self._update()

    def _configure(self) -> None:
        if not any(_machine_sources()):
            raise MachineError(
                f"{ETC} names no Debian source, and some sources come from Debian",
                "set DDLCE_DEBIAN_ARCHIVE to the address of a Debian archive, or give the folder "
                "made by `ddlce fetch --out DIR` with `ddlce fetch --from DIR`",
            )
        with locked_until(self.home / ".lock", self.stop):
            parts = self.home / "sources.list.d"
            wanted = {name: self._sources(name, text) for name, text in _machine_sources()}
            for stale in [p for p in parts.glob("*") if p.name not in wanted]:
                stale.unlink()
            for name, text in wanted.items():
                write_atomic(parts / name, text)
            write_atomic(self.home / "apt.conf", self._configuration())
            for name in ("lists/partial", "cache/archives/partial"):
                (self.home / name).mkdir(parents=True, exist_ok=True)
            (self.home / "status").touch()

    def _sources(self, name: str, text: str) -> str:
        if self.suite:
            text = in_suite(name, text, _machine_suite(), self.suite, self.area)
        return with_source_packages(name, text)

    def _configuration(self) -> str:
        home = self.home
        return f"""\
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{home}/sources.list.d";
Dir::State::lists "{home}/lists";
Dir::State::status "{home}/status";
Dir::Cache "{home}/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
APT::Architecture "{self.architecture}";
#clear APT::Architectures;
APT::Architectures {{ "{self.architecture}"; }};
APT::Sandbox::User "{"root" if os.geteuid() == 0 else ""}";
Acquire::Languages "none";
Acquire::Retries "{len(BACKOFF_S)}";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""

    def _update(self) -> None:
        with locked_until(self.home / ".update.lock", self.stop):
            self._get("--quiet", "--error-on=any", "update")

    def _get(self, *arguments: str) -> str:
        return self._run("apt-get", *arguments)

    def _run(self, program: str, *arguments: str) -> str:
        command = [program, *self._options(), *arguments]
        try:
            ran = subprocess.run(command, env=_environment(), capture_output=True, text=True)
        except FileNotFoundError:
            raise MachineError(
                f"{program}: not on this machine, and some sources come from Debian",
                "run `ddlce fetch --out DIR` on a Debian machine, `ddlce fetch --from DIR` here",
            ) from None
        if ran.returncode:
            reason = [line for line in ran.stderr.splitlines() if line.startswith("E:")]
            again = "update" in arguments or "Could not get lock" in ran.stderr
            raise DownloadError("\n".join(reason[:2]) or ran.stderr.strip(), again=again)
        return ran.stdout

    def _options(self) -> list[str]:
        return [f"--config-file={self.home / 'apt.conf'}"]


def with_source_packages(name: str, text: str) -> str:
    """An apt sources file that serves source packages too.

    Args:
        name: its file name: `*.sources` is deb822, anything else one line per source.
    """
    if name.endswith(".sources"):
        return re.sub(r"(?im)^Types:.*$", "Types: deb deb-src", text)
    kept = [line for line in text.splitlines() if re.match(r"\s*deb\s", line)]
    return "".join(f"{line}\n{re.sub(r'deb', 'deb-src', line, count=1)}\n" for line in kept)


def in_suite(name: str, text: str, ours: str, suite: str, area: str = "") -> str:
    """An apt sources file with another suite in the place of the machine's own.

    The release with its updates and security updates, as the machine has them; Debian's rolling
    suites have neither. What is of none of these
    (backports, other vendors' sources) is left out.

    Args:
        name: its file name: `*.sources` is deb822, anything else one line per source.
        ours: the machine's suite, "bookworm".
        area: of the archive, in the place of the machine's own.
    """
    kinds = ("",) if suite in ROLLING else ("", "-updates", "-security")
    swap = {ours + kind: suite + kind for kind in kinds}
    if name.endswith(".sources"):
        stanzas = []
        for stanza in re.split(r"\n\s*\n", text):
            line = re.search(r"(?im)^Suites:(.*)$", stanza)
            wanted = [swap[word] for word in line[1].split() if word in swap] if line else []
            if line and wanted:
                stanzas.append(stanza.replace(line[0], f"Suites: {' '.join(wanted)}"))
        found = "\n\n".join(stanzas)
        return re.sub(r"(?im)^Components:.*$", f"Components: {area}", found) if area else found
    kept = []
    for row in text.splitlines():
        parts = re.fullmatch(r"(\s*deb\s+(?:\[[^]]*\]\s*)?\S+\s+)(\S+)(.*)", row)
        if parts and parts[2] in swap:
            kept.append(f"{parts[1]}{swap[parts[2]]}{f' {area}' if area else parts[3]}\n")
    return "".join(kept)


def _machine_suite() -> str:
    """The suite of this machine's Debian, by its code name."""
    release = platform.freedesktop_os_release()
    if release.get("ID") != "debian" or "VERSION_CODENAME" not in release:
        raise MachineError(
            "this machine is no release of Debian, and some sources come from another release",
            "run `ddlce fetch --out DIR` on a Debian machine, `ddlce fetch --from DIR` here",
        )
    return release["VERSION_CODENAME"]


def _machine_sources() -> Iterator[tuple[str, str]]:
    """Name and text of each file in which the machine's apt names its sources."""
    parts = sorted((ETC / "sources.list.d").glob("*"))
    for path in [ETC / "sources.list", *parts]:
        if path.suffix in (".list", ".sources") and path.is_file():
            text = path.read_text()
            if re.search(r"(?m)^(\s*deb\s|Types:)", text):
                yield path.name, text


def _names(record: Message) -> list[str]:
    """File names in a record of a Packages or Sources list."""
    if binary := record["Filename"]:
        # The list says pool/…/x_1.0_amd64.deb; apt puts the epoch back in when it downloads.
        return [Path(binary).name]
    lines = (record["Files"] or record["Checksums-Sha256"] or "").splitlines()
    return [words[-1] for words in map(str.split, lines) if words]


def newer(one: str, other: str) -> str:
    """The higher of two Debian versions."""
    done = subprocess.run(["dpkg", "--compare-versions", one, "ge", other], check=False)
    return one if done.returncode == 0 else other


def _fields(match: re.Match[str]) -> tuple[str, str, int, str]:
    return match["uri"], match["file"], int(match["size"]), match["hash"]


def _environment() -> dict[str, str]:
    """apt's messages are matched, so they must be in English."""
    return {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
