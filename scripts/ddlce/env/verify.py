"""`ddlce env verify`: is every file of an environment what its packages say?"""

from __future__ import annotations

import hashlib
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from ddlce.env.freeze import EXTERNAL, FROZEN, can_be_written
from ddlce.env.layout import LOCK_COPY, Origin, read_origin
from ddlce.env.records import Entry, Record, read_records
from ddlce.errors import DdlceError, InputError
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock

#: Hashing releases the interpreter's lock; more threads than this only wait for the disk.
THREADS = 4


@dataclass
class Report:
    """What is wrong with an environment; paths are relative to the prefix.

    Attributes:
        prefix: the environment.
        kind: `release` or `clone`.
        files: how many files were checked.
        modified: their content is not the package's.
        missing: a package has them, the prefix does not.
        extra: no package has them (only a problem in a release).
        writable: somebody could write them (only in a release).
        problems: what concerns the environment as a whole.
    """

    prefix: Path
    kind: str
    files: int = 0
    modified: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    extra: list[str] = field(default_factory=list)
    writable: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when nothing is wrong; a clone may have files of its own."""
        extra = self.extra if self.kind == "release" else []
        return not (self.modified or self.missing or extra or self.writable or self.problems)


def verify(prefix: Path) -> Report:
    """Check every file, permission and marker of an environment.

    Raises:
        InputError: there is no complete environment of ours at `prefix`.
    """
    origin = read_origin(prefix)
    if origin is None:
        raise InputError(f"{prefix} is not a complete environment of ddlce", "see: ddlce env list")
    report = Report(prefix, origin.kind)
    records = read_records(prefix)
    expected = {entry["_path"]: entry for record in records for entry in record.entries}
    with ThreadPoolExecutor(THREADS) as pool:
        verdicts = pool.map(lambda item: _check(prefix, *item), expected.items())
        for name, verdict in zip(expected, verdicts, strict=True):
            report.files += 1
            if verdict == "missing":
                report.missing.append(name)
            elif verdict == "modified":
                report.modified.append(name)
    _walk(prefix, expected, report)
    if origin.kind == "release":
        _check_release(prefix, origin, records, report)
    for names in (report.modified, report.missing, report.extra, report.writable):
        names.sort()
    return report


def _check(prefix: Path, name: str, entry: Entry) -> str:
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


def _walk(prefix: Path, expected: dict[str, Entry], report: Report) -> None:
    """Find what no package has, and what can be written."""
    frozen = report.kind == "release"
    for folder, _names, files in os.walk(prefix):
        inside = os.path.relpath(folder, prefix)
        if frozen and os.lstat(folder).st_mode & 0o222:
            report.writable.append(f"{inside}/")
        for name in files:
            path = name if inside == "." else f"{inside}/{name}"
            if path not in expected and not _is_ours(path):
                report.extra.append(path)
            status = os.lstat(os.path.join(folder, name))  # noqa: PTH118 - 30 000 files
            if frozen and stat.S_ISREG(status.st_mode) and can_be_written(status):
                report.writable.append(path)


def _is_ours(path: str) -> bool:
    """True for the files that an environment has beside its packages'."""
    return path.startswith("conda-meta/") or path in (".condarc",) or path.endswith(f"/{EXTERNAL}")


def _check_release(prefix: Path, origin: Origin, records: list[Record], report: Report) -> None:
    """Check the markers of a release, and its packages against its copy of the lock."""
    if not (prefix / FROZEN).is_file():
        report.problems.append(f"{FROZEN} is missing: conda would change the environment")
    if not (prefix / ".condarc").is_file():
        report.problems.append(".condarc is missing: conda would not know the channel")
    pythons = [p for p in prefix.glob("lib/python3.*/") if (p / "os.py").is_file()]
    if not all((p / EXTERNAL).is_file() for p in pythons):
        report.problems.append(f"{EXTERNAL} is missing: pip would change the environment")
    try:
        text = (prefix / LOCK_COPY).read_text(encoding="utf-8")
        lock = EnvLock.load(prefix / LOCK_COPY)
    except (OSError, DdlceError) as error:
        report.problems.append(f"{LOCK_COPY}: {error}")
        return
    if not origin.digest == hashlib.sha256(text.encode()).hexdigest() == lock.digest:
        report.problems.append(f"{LOCK_COPY} is not the lock that the release was made from")
    locked = {(p.stem, p.sha256) for p in lock.packages}
    present = {(r.stem, str(r.data.get("sha256"))) for r in records}
    for stem, _ in sorted(locked - present):
        report.problems.append(f"package {stem} is in the lock and not in the prefix")
    for stem, _ in sorted(present - locked):
        report.problems.append(f"package {stem} is in the prefix and not in the lock")
