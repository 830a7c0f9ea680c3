"""What is asked of every package, one function each."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from packaging.version import Version

from ddlce.audit.facts import Facts, File
from ddlce.audit.model import DRIVERS, GLIBC, Below, Finding, Rule
from ddlce.audit.symbols import glibc_above, undefined
from ddlce.bytecheck import source_name
from ddlce.elf import Elf
from ddlce.platforms import PLATFORMS
from ddlce.settings import OWN_GLIBC, OWN_GLIBC_FOLDER

#: A library's own loader and libc.so.6 are there before it is loaded: they came with the program.
LOADED = frozenset({"libc.so.6", "ld64.so.2"})


def index_json(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """info/index.json is complete, and says what the file's name and folder say."""
    index = facts.index
    for key in ("name", "version", "build", "build_number", "subdir", "depends", "timestamp"):
        if key not in index:
            yield Finding("index-json", "info/index.json", f"has no {key}")
    stem = "-".join(str(index.get(key)) for key in ("name", "version", "build"))
    if facts.path.name != f"{stem}.conda":
        yield Finding("index-json", "info/index.json", f"says {stem}, not {facts.path.stem}")
    subdir = facts.path.parent.name
    if index.get("subdir") != subdir and (subdir in PLATFORMS or subdir == "noarch"):
        yield Finding("index-json", "info/index.json", f"says {index.get('subdir')}, not {subdir}")


def about_json(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """info/about.json has what the channel's pages and licence checkers show."""
    about = facts.info.get("about") or {}
    for key in ("home", "license", "summary"):
        if not about.get(key):
            yield Finding("about-json", "info/about.json", f"has no {key}")


def licence_files(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """The licence's text is in the package."""
    if not any(size for _, size in facts.licenses):
        yield Finding("licence-file", "info/licenses", "holds no licence text")


def paths_json(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """info/paths.json names every file, with its type, size and sha256."""
    if not isinstance(facts.info.get("paths"), dict):
        yield Finding("paths-json", "info/paths.json", "is missing")
        return
    entries = {entry["_path"]: entry for entry in facts.paths}
    if len(entries) != len(facts.paths):
        yield Finding("paths-json", "info/paths.json", "names a path twice")
    for path in sorted(entries.keys() ^ facts.files.keys()):
        where = "not in the package" if path in entries else "not in paths.json"
        yield Finding("paths-json", path, where)
    for path in sorted(entries.keys() & facts.files.keys()):
        entry, file = entries[path], facts.files[path]
        kind = "hardlink" if file.target is None else "softlink"
        if entry["path_type"] != kind:
            yield Finding("paths-json", path, f"is a {kind}, not a {entry['path_type']}")
        elif kind == "hardlink":
            if entry.get("size_in_bytes") != file.size:
                said = entry.get("size_in_bytes")
                yield Finding("paths-json", path, f"has {file.size} bytes, not {said}")
            if entry.get("sha256") != file.sha256:
                yield Finding("paths-json", path, "has another sha256")


def links(facts: Facts, below: Below | None) -> Iterator[Finding]:
    """A symbolic link leads to a file of the package or of what it depends on."""
    for file in facts.files.values():
        if file.target is None:
            continue
        goal = posixpath.normpath(posixpath.join(str(file.folder), file.target))
        if file.target.startswith("/") or goal.startswith("../"):
            yield Finding("link", file.path, f"leads out of the prefix, to {file.target}")
        elif below is not None and not _exists(goal, facts, below):
            yield Finding("link", file.path, f"leads to {file.target}, which is not there")


def _exists(path: str, facts: Facts, below: Below) -> bool:
    if path in facts.files or path in below.paths:
        return True
    folder = f"{path}/"
    return any(known.startswith(folder) for known in (*facts.files, *below.paths))


def permissions(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """No file runs as another user, or may be written by every user."""
    for file in facts.files.values():
        if file.target is None and file.mode & 0o6002:
            yield Finding("permissions", file.path, f"has mode {file.mode & 0o7777:o}")


def build_paths(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """A build folder that is left in a file works on no other machine."""
    for file in facts.files.values():
        for mark in file.marks:
            yield Finding("build-path", file.path, f"holds the build folder {mark}")


def placeholders(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """What is registered for prefix replacement holds the prefix, and has the right mode."""
    for entry in facts.paths:
        file = facts.files.get(entry["_path"])
        if not entry.get("prefix_placeholder") or file is None:
            continue
        if not file.placeholder:
            yield Finding("placeholder", file.path, "is registered, but the prefix is not in it")
        mode = "text" if file.text else "binary"
        if entry.get("file_mode") != mode:
            said = entry.get("file_mode")
            yield Finding("placeholder", file.path, f"is {mode}, but registered as {said}")


def machine(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """Programs and libraries are for the package's platform; noarch has none."""
    subdir = str(facts.index.get("subdir"))
    for file, elf in _elves(facts):
        if subdir == "noarch":
            yield Finding("machine", file.path, "is compiled, in a noarch package")
        elif subdir in PLATFORMS and elf.machine != PLATFORMS[subdir].elf:
            yield Finding("machine", file.path, f"is for {elf.machine}, not for {subdir}")


def page_size(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """What is for a processor whose kernels have pages of 64 KiB can be loaded on them."""
    pages = {row.elf: row.page_size for row in PLATFORMS.values()}
    for file, elf in _elves(facts):
        wanted = pages.get(elf.machine, 0)
        if 0 < elf.page < wanted:
            yield Finding(
                "page-size", file.path, f"is aligned for pages of {elf.page} bytes, not {wanted}"
            )


def rpaths(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """RPATH and RUNPATH begin with $ORIGIN and stay inside the prefix."""
    for file, elf in _elves(facts):
        for entry in elf.rpaths:
            folder = search_folder(file, entry)
            if folder is None:
                yield Finding("rpath", file.path, f"has the rpath {entry}; use $ORIGIN")
            elif folder.startswith(".."):
                yield Finding("rpath", file.path, f"has the rpath {entry}, out of the prefix")


def search_folder(file: File, entry: str) -> str | None:
    """The folder, relative to the prefix, that an rpath entry means; None if it is absolute."""
    match = re.fullmatch(r"\$(?:ORIGIN|\{ORIGIN\})(/.*)?", entry)
    return posixpath.normpath(f"{file.folder}{match[1] or ''}") if match else None


def needed(facts: Facts, below: Below | None) -> Iterator[Finding]:
    """Every library that a file needs is where the loader looks, and from a declared dependency.

    Only glibc (where the package is not for one in the prefix), device drivers and what the
    recipe lists (missing_dso_allowlist) may be the machine's. Without `below` only the package
    itself is known, so nothing is said of the rest.
    """
    if below is None:
        return
    machine = DRIVERS | set((facts.info.get("ddl-ce") or {}).get("from_machine", ()))
    machine = machine - GLIBC | LOADED if OWN_GLIBC in below.direct else machine | GLIBC
    folders = loader_folders(facts)
    for file, elf in _elves(facts):
        for soname in elf.needed:
            candidates = [posixpath.join(folder, soname) for folder in folders[file.path]]
            if soname in machine or any(path in facts.files for path in candidates):
                continue
            owner = next((below.paths[path] for path in candidates if path in below.paths), None)
            if owner is None:
                place = _elsewhere(soname, facts, below)
                yield Finding("needed", file.path, f"needs {soname}, which {place}")
            elif owner not in below.direct:
                yield Finding(
                    "needed", file.path, f"needs {soname} of {owner}, which is not in depends"
                )


def _elsewhere(soname: str, facts: Facts, below: Below) -> str:
    owners = {path: facts.name for path in facts.files} | below.paths
    found = sorted({name for path, name in owners.items() if PurePosixPath(path).name == soname})
    return f"is in {', '.join(found)}, where no rpath leads" if found else "is nowhere"


def loader_folders(facts: Facts) -> dict[str, list[str]]:
    """The folders that ld.so searches for what each ELF file needs, relative to the prefix.

    A file with DT_RUNPATH is served by that alone; any other by its own DT_RPATH and those of
    the files that load it, up to the program, which for a Python extension is our interpreter
    with $ORIGIN/../lib (ld.so(8)).
    """
    loaders: dict[str, list[File]] = {}
    own: dict[str, list[str]] = {}
    for file, elf in _elves(facts):
        own[file.path] = [f for entry in elf.rpaths if (f := search_folder(file, entry))]
        for soname in elf.needed:
            loaders.setdefault(soname, []).append(file)
    searched = {}
    for file, elf in _elves(facts):
        folders = list(own[file.path])
        if elf.inherited or not elf.rpaths:
            todo, seen = [file], {file.path}
            while todo:
                for loader in loaders.get(PurePosixPath(todo.pop().path).name, ()):
                    if loader.path not in seen:
                        seen.add(loader.path)
                        todo.append(loader)
                        if loader.elf and loader.elf.inherited:
                            folders += own[loader.path]
            # What a library inherits from programs of other packages: python's, among them.
            if "site-packages" in file.path or "lib-dynload" in file.path:
                folders.append("lib")
            if not elf.interpreter and OWN_GLIBC in facts.depends:
                folders.append(OWN_GLIBC_FOLDER)
        searched[file.path] = folders
    return searched


def glibc_floor(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """`depends` declares a glibc that is at least as new as the symbols that the files need.

    The machine's (`__glibc`), or the package with one for the prefix, which itself needs none.
    """
    if facts.name == OWN_GLIBC:
        return
    declared = max(
        (
            Version(match[1])
            for spec in facts.index.get("depends", ())
            if (match := re.match(r"(?:__)?glibc >=(\d+(?:\.\d+)*)", spec))
        ),
        default=None,
    )
    for file, elf in _elves(facts):
        if elf.glibc and (declared is None or Version(elf.glibc) > declared):
            said = declared or "none"
            yield Finding(
                "glibc-floor", file.path, f"needs glibc {elf.glibc}; depends declares {said}"
            )


def loader(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """A program runs on the glibc that its package depends on.

    Where that is the prefix's, it names the loader there, which is replaced with the prefix when
    it is installed, and its RPATH (not RUNPATH, which libraries do not inherit) leads there.
    """
    if facts.name == OWN_GLIBC:  # Debian's own: its libc.so.6 can be run, to tell its version
        return
    registered = {e["_path"]: e.get("prefix_placeholder") for e in facts.paths}
    for file, elf in _elves(facts):
        if not elf.interpreter:
            continue
        prefix = registered.get(file.path)
        inside = bool(prefix) and elf.interpreter.startswith(f"{prefix}/{OWN_GLIBC_FOLDER}/")
        leads = OWN_GLIBC_FOLDER in {search_folder(file, entry) for entry in elf.rpaths}
        problem = ""
        if OWN_GLIBC not in facts.depends:
            if inside:
                problem = f"names a loader of {OWN_GLIBC}, which is not in depends"
        elif not inside:
            problem = f"names the loader {elf.interpreter}, not the one in {OWN_GLIBC_FOLDER}"
        elif not leads or not elf.inherited:
            problem = f"has no RPATH to {OWN_GLIBC_FOLDER}, for itself and all that it loads"
        if problem:
            hint = "; link it with $LDFLAGS, as stdlib('c') sets them"
            yield Finding("loader", file.path, problem + hint)


def bytecode(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """Bytecode names the time of its source.

    Where it does not, Python compiles at each start, and writes the result where it may: root
    changes the release.
    """
    stale = []
    for file in facts.files.values():
        folder, _, name = file.path.rpartition("__pycache__/")
        source = facts.files.get(f"{folder}{source_name(name)}")
        if source and file.source_time not in (None, source.time):
            stale.append(file)
    if stale:
        first = stale[0]
        rest = f", as in {len(stale) - 1} other files" if stale[1:] else ""
        named = f"is for a source of another time ({first.source_time}) than the one beside it"
        yield Finding("bytecode", first.path, f"{named}{rest}; compile it with the package's time")


def run_exports(facts: Facts, _below: Below | None) -> Iterator[Finding]:
    """A library that others can link to says what they then depend on."""
    exports = facts.info.get("run_exports") or {}
    if any(exports.values()):
        return
    for path, file in facts.files.items():
        versioned = re.fullmatch(r"(lib/lib[^/]+\.so)\.\d[^/]*", path)
        if versioned and versioned[1] in facts.files and file.elf and file.elf.soname:
            yield Finding("run-exports", path, "can be linked to, but run_exports is empty")
            return


def _elves(facts: Facts) -> Iterator[tuple[File, Elf]]:
    for file in facts.files.values():
        if file.elf is not None:
            yield file, file.elf


RULES: tuple[Rule, ...] = (
    index_json,
    about_json,
    licence_files,
    paths_json,
    links,
    permissions,
    build_paths,
    placeholders,
    machine,
    page_size,
    rpaths,
    needed,
    glibc_floor,
    glibc_above,
    undefined,
    loader,
    bytecode,
    run_exports,
)
