"""Write the modulefiles of an environment, and say which version is the default."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ddlce.env.layout import Layout, read_origin
from ddlce.errors import InputError
from ddlce.files import write_atomic
from ddlce.modulefile.content import compose, read_content
from ddlce.modulefile.lua import LuaWriter
from ddlce.modulefile.tcl import TclWriter
from ddlce.modulefile.writer import ModuleWriter
from ddlce.ownership import check_place

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
    prefix: Path, layout: Layout, into: Path | None = None, name: str | None = None
) -> Written:
    """Write one modulefile per module system.

    Args:
        prefix: a complete environment.
        layout: of the root that the environment's current release is looked up in.
        into: the folder to write to; `<root>/modulefiles` by default.
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
    # All text first: a modulefile that cannot be written stops before any is.
    texts = {writer: compose(content, writer()) for writer in WRITERS}
    files, trees = {}, {}
    for writer in WRITERS:
        folder = into or layout.root / "modulefiles"
        check_place(folder / writer.folder / content.name, "the folder of modulefiles")
    for writer, text in texts.items():
        tree = (into or layout.root / "modulefiles") / writer.folder
        path = tree / content.name / f"{content.version}{writer.suffix}"
        write_atomic(path, text)
        files[writer.system], trees[writer.system] = path, tree
    folders = [path.parent for path in files.values()]
    removed = [] if into or name else _remove_stale(layout, content.env.env, folders)
    default = _default_version(layout, content.env.env, content.version, folders)
    for writer in WRITERS:
        path = files[writer.system].with_name(writer.default_file)
        write_atomic(path, writer.default_version(content.name, default))
    return Written(content.name, content.version, default, prefix, files, trees, removed)


def _remove_stale(layout: Layout, env: str, folders: Iterable[Path]) -> list[Path]:
    """Remove the modulefiles whose release is no longer under the root."""
    origins = (read_origin(prefix) for prefix in layout.releases())
    kept = {origin.release for origin in origins if origin and origin.env == env}
    removed = []
    for writer, folder in zip(WRITERS, folders, strict=True):
        for path in sorted(folder.glob(f"[!.]*{writer.suffix}")):
            if path.name.removesuffix(writer.suffix) not in kept:
                path.unlink()
                removed.append(path)
    return removed


def _default_version(layout: Layout, env: str, written: str, folders: Iterable[Path]) -> str:
    """The current release's version if it has its modulefiles, else the one just written."""
    current = layout.current(env)
    origin = read_origin(current) if current else None
    if origin is None:
        return written
    pairs = zip(WRITERS, folders, strict=True)
    there = all((folder / f"{origin.release}{writer.suffix}").is_file() for writer, folder in pairs)
    return origin.release if there else written
