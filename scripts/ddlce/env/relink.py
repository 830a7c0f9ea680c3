"""The quick way to fill a clone: link what the source's records name.

rattler's install makes the same files and records, but it reads each package's own list again
and goes over the prefix several times. This makes only what every clone of a release needs.
Whatever else a prefix may hold (two packages with one file, packages from another cache than
the release's, a prefix too long for a `#!` line) is found while planning, before anything is
written, and left to rattler.

Paths are strings: with 30 000 files, pathlib would take longer than the kernel.
"""

# ruff: noqa: PTH101, PTH102, PTH115, PTH116, PTH123, PTH211

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.env.bytecode import shared_bytecode
from ddlce.env.freeze import is_mark
from ddlce.env.records import FileEntry, Record
from ddlce.env.sharing import Sharing, compiled_time
from ddlce.noarch import site_packages
from ddlce.packagecache import find

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress

#: The longest `#!` line that every kernel reads to its end.
SHEBANG = 127

#: What is understood here of a file; any other field is a reason to leave the prefix to rattler.
FIELDS = frozenset(("_path", "path_type", "sha256", "sha256_in_prefix", "size_in_bytes"))
FIELDS |= {"file_mode", "prefix_placeholder"}


class Unusual(Exception):
    """A prefix has something that is left to rattler."""


@dataclass
class PackagePlan:
    """What a clone gets of one package; names are paths in the prefix.

    Attributes:
        record: the package's record, as the clone will have it.
        changed: it is not the source's.
        links: (file, name, time) of what is linked; the time in ns where bytecode is for it.
        symlinks: (what it says, name) of symbolic links.
        own: (content, permissions, name) of files that hold the prefix.
    """

    record: Record
    changed: bool = False
    links: list[tuple[str, str, int | None]] = field(default_factory=list)
    symlinks: list[tuple[str, str]] = field(default_factory=list)
    own: list[tuple[bytes, int, str]] = field(default_factory=list)

    def names(self) -> list[str]:
        """Every file."""
        linked = [name for _, name, _ in self.links] + [name for _, name in self.symlinks]
        return linked + [name for *_, name in self.own]


def plan_links(source: Path, target: Path, records: list[Record], pkgs: Path) -> list[PackagePlan]:
    """What to make for a clone of `source`; nothing is written yet.

    Args:
        target: the prefix that the clone's files will name.
        pkgs: the read-only cache of the source's release; its content was checked then.

    Raises:
        Unusual: rattler must do it.
    """
    planner = _Planner(
        str(source), os.fsencode(target), pkgs, site_packages(r.data for r in records)
    )
    plans = [planner.plan(record) for record in records]
    names = [name for plan in plans for name in plan.names()]
    if len(names) != len(set(names)):
        raise Unusual("two packages have the same file")
    return plans


def link_files(
    plans: list[PackagePlan], staging: Path, sharing: Sharing, progress: OnProgress | None = None
) -> None:
    """Carry out the plans in the empty folder `staging`.

    Args:
        sharing: counts how the files were made.

    Raises:
        SourceError: a file of the source, or of the cache, is not there.
    """
    root = str(staging)
    _make_folders(root, plans)
    for number, plan in enumerate(plans, 1):
        if progress:
            progress(number, len(plans), str(plan.record.data.get("name")))
        for file, name, mtime_ns in plan.links:
            sharing.give(file, f"{root}/{name}", mtime_ns)
        for text, name in plan.symlinks:
            os.symlink(text, f"{root}/{name}")
        for data, mode, name in plan.own:
            with open(f"{root}/{name}", "xb") as stream:
                stream.write(data)
                os.fchmod(stream.fileno(), mode)
        _place_record(plan, staging)
        sharing.copied += len(plan.own) + 1


class _Planner:
    """Plans one package after the other.

    Attributes:
        source: the source's prefix.
        target: the prefix that is written into files.
        pkgs: the folder of unpacked packages.
        site: where `site-packages` of noarch packages goes.
    """

    def __init__(self, source: str, target: bytes, pkgs: Path, site: str) -> None:
        self.source = source
        self.target = target
        self.pkgs = pkgs
        self.site = site

    def plan(self, record: Record) -> PackagePlan:
        """What the clone gets of this package."""
        package = str(find(self.pkgs, record.stem, str(record.data.get("sha256"))) or "")
        if not package:
            raise Unusual(f"{record.stem}, as it was installed, is not in {self.pkgs}")
        python = record.data.get("noarch") == "python"
        plan = PackagePlan(record)
        entries: list[FileEntry] = []
        bytecode = shared_bytecode(self.source, record)
        for entry in record.entries:
            if not entry.keys() <= FIELDS:
                raise Unusual(f"{entry} has fields that are not understood")
            name = entry["_path"]
            kind = entry.get("path_type")
            if is_mark(name):
                plan.changed = True
                continue
            if kind == "pyc_file":
                if name not in bytecode:
                    plan.changed = True
                    continue
                plan.links.append((f"{self.source}/{name}", name, None))
            elif kind == "unix_python_entry_point":
                entry = self._script(plan, entry)
            elif kind not in ("hardlink", "softlink"):
                raise Unusual(f"{name} is a {kind}")
            else:
                file = f"{package}/{self._packaged(package, name) if python else name}"
                if kind == "softlink":
                    plan.symlinks.append((_relative(file), name))
                elif entry.get("prefix_placeholder"):
                    entry = self._relocated(plan, entry, file)
                else:
                    plan.links.append((file, name, compiled_time(self.source, name)))
            entries.append(entry)
        if plan.changed:
            plan.record = record.with_entries(entries)
        return plan

    def _packaged(self, package: str, name: str) -> str:
        """Where a noarch package has a file that is at `name` in a prefix."""
        if name.startswith(f"{self.site}/"):
            return f"site-packages{name[len(self.site) :]}"
        script = f"python-scripts/{name[4:]}"
        if name.startswith("bin/") and os.path.lexists(f"{package}/{script}"):
            return script
        return name

    def _relocated(self, plan: PackagePlan, entry: FileEntry, file: str) -> FileEntry:
        """Plan a file with the prefix inside; returns its new entry."""
        data, mode = _read(file)
        old = os.fsencode(entry["prefix_placeholder"])
        if entry.get("file_mode") == "binary":
            new = replace_strings(data, old, self.target)
        else:
            new = data.replace(old, self.target)
            self._check_shebang(new)
        return _own(plan, entry, new, mode, "sha256_in_prefix")

    def _script(self, plan: PackagePlan, entry: FileEntry) -> FileEntry:
        """Plan a script that an installer made, whose first line names the interpreter."""
        data, mode = _read(f"{self.source}/{entry['_path']}")
        first = re.match(rb"#!/[^\n ]*(/bin/python[0-9.]*\n)", data)
        if not first or hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise Unusual(f"{entry['_path']} is not as it was made")
        new = b"#!" + self.target + first[1] + data[first.end() :]
        self._check_shebang(new)
        return _own(plan, entry, new, mode, "sha256")

    def _check_shebang(self, data: bytes) -> None:
        """Refuse a `#!` line that the kernel would cut, or split at a space of the prefix."""
        if data.startswith(b"#!"):
            line = data.partition(b"\n")[0]
            if len(line) > SHEBANG or (b" " in self.target and self.target in line):
                raise Unusual("the prefix does not fit into a #! line")


def _own(plan: PackagePlan, entry: FileEntry, data: bytes, mode: int, hashed: str) -> FileEntry:
    plan.changed = True
    plan.own.append((data, mode | stat.S_IWUSR, entry["_path"]))
    digest = hashlib.sha256(data).hexdigest()
    return {**entry, hashed: digest, "size_in_bytes": len(data)}


def replace_strings(data: bytes, old: bytes, new: bytes) -> bytes:
    """Put `new` for `old` into C strings, which keep their places: they are filled with NULs."""
    if len(new) > len(old):
        raise Unusual("the prefix is longer than its place in a binary")

    def replace(match: re.Match[bytes]) -> bytes:
        return match[0].replace(old, new).ljust(len(match[0]), b"\0")

    return re.sub(re.escape(old) + rb"[^\0]*", replace, data)


def _read(file: str) -> tuple[bytes, int]:
    """Content and permissions of a file."""
    try:
        with open(file, "rb") as stream:
            return stream.read(), stat.S_IMODE(os.fstat(stream.fileno()).st_mode)
    except OSError as error:
        raise Unusual(f"{file} cannot be read") from error


def _relative(file: str) -> str:
    """What a symbolic link says."""
    try:
        text = os.readlink(file)
    except OSError as error:
        raise Unusual(f"{file} is no link") from error
    if text.startswith("/"):
        raise Unusual(f"{file} points to an absolute path")
    return text


def _make_folders(root: str, plans: list[PackagePlan]) -> None:
    """Make every folder that is needed, for everybody to look into."""
    folders = {"conda-meta"}
    for folder in {name.rpartition("/")[0] for plan in plans for name in plan.names()}:
        inner = folder
        while inner and inner not in folders:
            folders.add(inner)
            inner = inner.rpartition("/")[0]
    os.chmod(root, 0o755)
    for folder in sorted(folders):  # a folder before what is inside it
        os.mkdir(f"{root}/{folder}")
    if os.stat(f"{root}/conda-meta").st_mode & 0o777 != 0o755:  # another umask than usual
        for folder in folders:
            os.chmod(f"{root}/{folder}", 0o755)


def _place_record(plan: PackagePlan, staging: Path) -> None:
    """Put the package's record into the prefix, readable by everybody."""
    path = staging / "conda-meta" / plan.record.path.name
    if plan.changed:
        plan.record.path = path
        plan.record.save()
    else:
        shutil.copyfile(plan.record.path, path)
        path.chmod(0o644)
