"""Write the modulefiles of an environment, and say which version is the default."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddlce.env.layout import CURRENT, Layout, is_gone, read_origin
from ddlce.errors import InputError
from ddlce.files import explain_os_errors, write_atomic
from ddlce.modulefile.content import compose, read_content
from ddlce.modulefile.lua import LuaWriter
from ddlce.modulefile.tcl import TclWriter
from ddlce.modulefile.writer import ModuleWriter
from ddlce.ownership import check_place
from ddlce.waiting import OnWait, waiting_lock

WRITERS: tuple[type[ModuleWriter], ...] = (LuaWriter, TclWriter)


@dataclass(frozen=True)
class Written:
    """The outcome of `write_modulefiles`.

    Attributes:
        name, version: of the module.
        default: the version that the name alone means.
        prefix: the environment.
        files: module system → its modulefile.
        trees: module system → the folder for `module use`.
        removed: modulefiles of releases that are gone.
    """

    name: str
    version: str
    default: str
    prefix: Path
    files: dict[str, Path]
    trees: dict[str, Path]
    removed: list[Path]


def write_modulefiles(
    prefix: Path,
    layout: Layout,
    into: Path | None = None,
    name: str | None = None,
    on_wait: OnWait | None = None,
) -> Written:
    """Write one modulefile per module system.

    Args:
        prefix: a complete environment.
        layout: of the root that the environment's current release is looked up in.
        into: the folder to write to; `<root>/modulefiles` by default, and for a candidate
            `<root>/modulefiles-candidate`.
        name: the module's name; the environment's by default.

    Raises:
        InputError: not such an environment, not a name, or activation that no modulefile can do.
        MachineError: the folder cannot be written, or others could change it.
    """
    if name is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._+-]*", name):
        raise InputError(
            f"--name {name!r} is not a name for a module",
            "use letters, digits, '.', '_', '+' and '-', and begin with a letter or a digit",
        )
    content = read_content(prefix, name)
    if not (into or name) and (other := module_of_other(layout, prefix)):
        raise InputError(
            f"{content.name}/{content.version} is the module of the default release {other}",
            f"make {prefix} the default one (ddlce env default), or write elsewhere: --out DIR",
        )
    # All text first: a modulefile that cannot be written stops before any is.
    texts = {writer: compose(content, writer()) for writer in WRITERS}
    files, trees = {}, {}
    is_candidate = layout.is_candidate(prefix)
    top = into or layout.modulefiles(candidates=is_candidate)
    for writer in WRITERS:
        check_place(top / writer.folder / content.name, "the folder of modulefiles")
    with waiting_lock(top / ".lock" if into else layout.lock, on_wait):
        for writer, text in texts.items():
            tree = top / writer.folder
            path = tree / content.name / f"{content.version}{writer.suffix}"
            write_atomic(path, text)
            files[writer.system], trees[writer.system] = path, tree
        folders = [path.parent for path in files.values()]
        removed = [] if into or name else _remove_stale(content.name, folders)
        if not (into or name or is_candidate):
            _withdraw(layout.modulefiles(candidates=True), content.name, prefix)
        default = _default_version(layout, content.env.env, content.version, folders)
        for writer in WRITERS:
            path = files[writer.system].with_name(writer.default_file)
            if default or not path.exists():
                text = writer.default_version(content.name, default or content.version)
                write_atomic(path, text)
    return Written(
        content.name, content.version, default or content.version, prefix, files, trees, removed
    )


def module_of_other(layout: Layout, prefix: Path) -> Path | None:
    """The default release, if a release that is offered beside it would have the same module."""
    current, own = layout.current(prefix.parent.name), read_origin(prefix)
    if current is None or own is None or current == prefix or layout.is_candidate(prefix):
        return None
    origin = read_origin(current)
    same = origin and (origin.env, origin.release) == (own.env, own.release)
    return current if same else None


def withdraw_modulefiles(layout: Layout, name: str, on_wait: OnWait | None = None) -> list[Path]:
    """Remove the modulefiles of an environment's releases that are gone, candidates' too.

    Args:
        layout: of the root that they were under.

    Raises:
        MachineError: a folder cannot be written.
    """
    removed = []
    with waiting_lock(layout.lock, on_wait):
        for candidates in (False, True):
            removed += _withdraw(layout.modulefiles(candidates=candidates), name)
    return removed


def _withdraw(top: Path, name: str, other: Path | None = None) -> list[Path]:
    """Remove stale modulefiles, and what says which is the default where none is left."""
    folders = [top / writer.folder / name for writer in WRITERS]
    with explain_os_errors(top):
        removed = _remove_stale(name, folders, other)
        for writer, folder in zip(WRITERS, folders, strict=True):
            if not next(folder.glob(f"[!.]*{writer.suffix}"), None):
                (folder / writer.default_file).unlink(missing_ok=True)
    return removed


def _remove_stale(name: str, folders: Iterable[Path], other: Path | None = None) -> list[Path]:
    """Remove the modulefiles that were made for a release that is gone, or for `other`."""
    removed = []
    for writer, folder in zip(WRITERS, folders, strict=True):
        for path in sorted(folder.glob(f"[!.]*{writer.suffix}")):
            prefix = _made_for(path, f"{name}/{path.name.removesuffix(writer.suffix)}")
            if prefix and (prefix == other or is_gone(prefix)):
                path.unlink()
                removed.append(path)
    return removed


def _made_for(path: Path, module: str) -> Path | None:
    """The release that a modulefile of this name was made for; None where others wrote it."""
    try:
        found = re.search(r"^(?:--|#) (.+): made for (\".+\")$", path.read_text("utf-8"), re.M)
        return Path(json.loads(found[2])) if found and found[1] == module else None
    except (OSError, ValueError):
        return None


def _default_version(layout: Layout, env: str, written: str, folders: Iterable[Path]) -> str:
    """The current release's version if it has its modulefiles, else the one just written.

    It is "" where there is a current release that cannot be read just now.
    """
    current = layout.current(env)
    origin = read_origin(current) if current else None
    if origin is None:
        return written if is_gone(layout.folder(env) / CURRENT) else ""
    pairs = zip(WRITERS, folders, strict=True)
    there = all((folder / f"{origin.release}{writer.suffix}").is_file() for writer, folder in pairs)
    return origin.release if there else written
