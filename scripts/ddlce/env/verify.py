"""`ddlce env verify`: is every file of an environment what its packages say?"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import stat
import subprocess
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ddlce import bytecheck, jsontext
from ddlce.env.archives import Wanted, read_archives
from ddlce.env.bytecode import module_of
from ddlce.env.create import render_condarc
from ddlce.env.finish import STATE
from ddlce.env.freeze import EXTERNAL, FROZEN, can_be_written
from ddlce.env.layout import LOCK_COPY, ORIGIN, Origin, require_origin
from ddlce.env.records import FileEntry, Record, read_records
from ddlce.errors import DdlceError
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock
from ddlce.platforms import this_platform
from ddlce.settings import Settings, release_folder

#: Hashing releases the interpreter's lock; more threads than this only wait for the disk.
THREADS = 4

#: What an environment has in conda-meta beside the records of its packages.
OURS = {"conda-meta/history", *map(str, (STATE, FROZEN, LOCK_COPY, ORIGIN))}
#: What goes wrong without a marker.
MARKERS = {
    FROZEN.name: "conda would change the environment",
    EXTERNAL: "pip would change the environment",
    ".condarc": "conda would not know the channel",
}


#: Extended attributes by which the kernel gives rights: to a program, or to users by lists.
#: Not `system.nfs4_acl`: there, every file has one, which says no more than its permissions.
RIGHTS = {"security.capability", "system.posix_acl_access", "system.posix_acl_default"}


@dataclass
class Verified:
    """What is wrong with an environment; paths are relative to the prefix.

    Attributes:
        prefix: the environment.
        kind: `release` or `clone`.
        files: how many files were checked.
        modified: their content is not the package's.
        missing: a package has them, the prefix does not.
        extra: no package has them (only a problem in a release).
        writable: somebody could write them (only in a release).
        attributes: `PATH: NAME` of what they have beside content and permissions: capabilities,
            access lists, labels of users (only in a release).
        problems: what concerns the environment as a whole.
    """

    prefix: Path
    kind: str
    files: int = 0
    modified: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when nothing is wrong; a clone may have files of its own."""
        extra = self.extra if self.kind == "release" else []
        wrong = (self.modified, self.missing, extra, self.writable, self.attributes, self.problems)
        return not any(wrong)


def verify(
    prefix: Path,
    settings: Settings | None = None,
    *,
    lock: EnvLock | None = None,
    quick: bool = False,
) -> Verified:
    """Check every file, link, permission and marker of an environment.

    A release is compared with the archives that its lock names; its bytecode, which no archive
    has, with what its own Python makes of the sources. A clone, which its owner may change, is
    compared with its own records, and so is a release with `quick`: that finds damage, but not
    somebody who changed the records too.

    Args:
        settings: the tree whose template `.condarc` was made from; without it, that file's text
            is not checked.
        lock: what the release must have been made from; its own copy otherwise.
        quick: read no archive.

    Raises:
        InputError: there is no complete environment of ours at `prefix`.
    """
    origin = require_origin(prefix)
    report = Verified(prefix, origin.kind)
    records = read_records(prefix)
    expected = {entry["_path"]: entry for record in records for entry in record.entries}
    made = None
    if origin.kind == "release":
        made = _check_release(prefix, origin, records, report, settings, lock)
    if made is None or quick:
        _compare(report, expected, lambda name: _check(prefix, name, expected[name]))
        _walk(prefix, expected.keys(), report)
    else:
        _against_archives(prefix, origin, made, expected, report)
    for label in ("modified", "missing", "extra", "writable", "attributes"):
        getattr(report, label).sort()
    return report


def _compare(report: Verified, names: Collection[str], check: Callable[[str], str]) -> None:
    """Count the files that are not as they must be; `check` says `missing` or `modified`."""
    with ThreadPoolExecutor(THREADS) as pool:
        for name, verdict in zip(names, pool.map(check, names), strict=True):
            report.files += 1
            if verdict:
                getattr(report, verdict).append(name)


def _against_archives(
    prefix: Path, origin: Origin, lock: EnvLock, recorded: Mapping[str, FileEntry], report: Verified
) -> None:
    """Compare a release with the locked archives, and its bytecode with its sources."""
    wanted: dict[str, Wanted] = {}
    for content in read_archives(lock.packages, origin.channels, prefix):
        if content.problem:
            report.problems.append(f"{content.stem} cannot be proven: {content.problem}")
        wanted |= content.files
    _compare(report, wanted.keys(), lambda name: _differs(prefix, name, wanted[name]))
    # Of a package that cannot be proven, its record is all there is to go by.
    unproven = any(content for content in report.problems if "cannot be proven" in content)
    rest = {n: e for n, e in recorded.items() if n not in wanted}
    compiled = {n: e for n, e in rest.items() if e.get("path_type") == "pyc_file"}
    others = {n: e for n, e in rest.items() if n not in compiled and not _is_ours(n)}
    if unproven:
        _compare(report, others.keys(), lambda name: _check(prefix, name, others[name]))
    else:
        report.problems += [f"{name} is in a record and in no package" for name in sorted(others)]
    _compare(report, compiled.keys(), lambda name: _check(prefix, name, compiled[name]))
    _walk(prefix, {*wanted, *compiled, *(others if unproven else ())}, report)
    report.modified += [name for name in compiled if module_of(name) not in wanted]
    if not (report.modified or report.missing or report.problems):
        report.modified += _wrong_bytecode(prefix, origin, sorted(compiled), report)


def _differs(prefix: Path, name: str, wanted: Wanted) -> str:
    path = prefix / name
    try:
        status = path.lstat()
        if wanted.link:
            return "" if path.is_symlink() and str(path.readlink()) == wanted.link else "modified"
    except OSError:
        return "missing"
    mode = status.st_mode
    if not stat.S_ISREG(mode) or mode & 0o7000 or bool(mode & 0o100) != wanted.executable:
        return "modified"
    return "" if sha256_file(path) == wanted.sha256 else "modified"


def _wrong_bytecode(prefix: Path, origin: Origin, names: list[str], report: Verified) -> list[str]:
    """The bytecode that is not what the environment's own Python makes of its source."""
    if names and origin.platform != this_platform():
        report.problems.append(f"bytecode cannot be proven: {origin.platform} does not run here")
        return []
    # As it was compiled: nothing but the interpreter and its library.
    command = [str(prefix / "bin/python"), "-I", "-S", "-B", bytecheck.__file__, str(prefix)]
    jobs = max(2, len(os.sched_getaffinity(0)))

    def run(part: list[str]) -> list[str]:
        if not part:
            return []
        text = "".join(f"{name}\n" for name in part)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
            report.problems.append(f"bytecode cannot be proven: {last}")
        return done.stdout.splitlines()

    with ThreadPoolExecutor(jobs) as pool:
        parts = [names[start::jobs] for start in range(jobs)]
        return [name for found in pool.map(run, parts) for name in found]


def _check(prefix: Path, name: str, entry: FileEntry) -> str:
    path = prefix / name
    try:
        status = path.lstat()
    except OSError:
        return "missing"
    kind = entry.get("path_type", "hardlink")
    if kind == "directory":
        return "" if stat.S_ISDIR(status.st_mode) else "modified"
    if kind == "softlink":
        return "" if stat.S_ISLNK(status.st_mode) else "modified"
    if not stat.S_ISREG(status.st_mode):
        return "modified"
    expected = entry.get("sha256_in_prefix") or entry.get("sha256")
    return "" if expected is None or sha256_file(path) == expected else "modified"


def _walk(prefix: Path, expected: Collection[str], report: Verified) -> None:
    """Find what no package has, what can be written, and what has attributes."""
    frozen = report.kind == "release"
    for folder, names, files in os.walk(prefix):
        inside = os.path.relpath(folder, prefix)
        if frozen:
            report.attributes += _attributes(folder, f"{inside}/")
        if frozen and os.lstat(folder).st_mode & 0o222:
            report.writable.append(f"{inside}/")
        # A link to a folder is among the folders.
        links = [name for name in names if os.path.islink(os.path.join(folder, name))]  # noqa: PTH114, PTH118
        for name in (*files, *links):
            path = name if inside == "." else f"{inside}/{name}"
            if path not in expected and not _is_ours(path):
                report.extra.append(path)
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - 30 000 files
            if frozen and stat.S_ISREG(status.st_mode) and can_be_written(status):
                report.writable.append(path)
            if frozen and stat.S_ISREG(status.st_mode):
                report.attributes += _attributes(f"{folder}/{name}", path)


def _attributes(file: str, name: str) -> list[str]:
    """The extended attributes that say who may do what with a file, or that a user has set.

    Others are the system's own: labels of SELinux, the layout of a file on Lustre.
    """
    try:
        found = os.listxattr(file, follow_symlinks=False)
    except OSError:  # a file system that has none
        return []
    return [f"{name}: {each}" for each in found if each in RIGHTS or each.startswith("user.")]


def _is_ours(path: str) -> bool:
    """True for files of ours that no package has."""
    folder, _, name = path.rpartition("/")
    if folder == "conda-meta":
        return path in OURS or name.endswith(".json")  # each a package: its name is compared
    return path == ".condarc" or bool(re.fullmatch(rf"lib/python3\.\d+/{EXTERNAL}", path))


def _check_release(
    prefix: Path,
    origin: Origin,
    records: list[Record],
    report: Verified,
    settings: Settings | None,
    trusted: EnvLock | None,
) -> EnvLock | None:
    """Check what a release has beside its packages; returns its lock."""
    markers = [prefix / FROZEN, prefix / ".condarc"]
    pythons = [p for p in prefix.glob("lib/python3.*/") if (p / "os.py").is_file()]
    markers += [p / EXTERNAL for p in pythons]
    for marker in markers:
        if marker.is_symlink() or not marker.is_file():
            name = marker.relative_to(prefix)
            report.problems.append(f"{name} is missing: {MARKERS[name.name]}")
    try:
        text = (prefix / LOCK_COPY).read_text(encoding="utf-8")
        lock = EnvLock.load(prefix / LOCK_COPY)
    except (OSError, DdlceError) as error:
        report.problems.append(f"{LOCK_COPY}: {error}")
        return None
    digest = lock.digest
    if not origin.digest == hashlib.sha256(text.encode()).hexdigest() == digest:
        report.problems.append(f"{LOCK_COPY} is not the lock that the release was made from")
    elif prefix.name != release_folder(lock.release, digest):
        report.problems.append(f"{LOCK_COPY} is not the lock that the folder is named after")
    if trusted and trusted.digest != digest:
        report.problems.append(f"{LOCK_COPY} is not the lock that was named")
    locked = {(p.stem, p.sha256) for p in lock.packages}
    present = {(r.stem, str(r.data.get("sha256"))) for r in records}
    for stem, _ in sorted(locked - present):
        report.problems.append(f"package {stem} is in the lock and not in the prefix")
    for stem, _ in sorted(present - locked):
        report.problems.append(f"package {stem} is in the prefix and not in the lock")
    stray = {p.stem for p in prefix.glob("conda-meta/*.json")} - {stem for stem, _ in locked}
    report.problems += [f"conda-meta/{stem}.json is no locked package's" for stem in sorted(stray)]
    if _variables(prefix) != lock.variables:
        report.problems.append(f"{STATE} does not set the lock's variables")
    if settings and not _same_condarc(prefix, origin, settings):
        report.problems.append(".condarc is not what this tree makes of the release's channels")
    return trusted or lock


def _variables(prefix: Path) -> object:
    try:
        found = jsontext.load((prefix / STATE).read_bytes())
        return found.get("env_vars", {}) if isinstance(found, dict) else found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        return error


def _same_condarc(prefix: Path, origin: Origin, settings: Settings) -> bool:
    site = dataclasses.replace(settings, root=Path(origin.pkgs).parent)
    try:
        text = (prefix / ".condarc").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return text == render_condarc(site, list(origin.channels.values()))
