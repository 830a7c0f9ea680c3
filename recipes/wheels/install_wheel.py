"""Install the wheel in $SRC_DIR into $PREFIX: the build script of every wheel package.

Run by the build machine's python3, whatever its version, with the standard library only: the
target's Python need not exist yet, nor run on this machine. The result depends on nothing but
the wheel and the options.
"""

from __future__ import annotations

import argparse
import configparser
import fnmatch
import os
import re
import stat
import struct
import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

#: Of the ELF format: kinds of segments and sections, and tags of the dynamic section.
PT_LOAD, PT_DYNAMIC, SHT_DYNSYM = 1, 2, 11
STRTAB, RPATH, RUNPATH = 5, 15, 29

LAUNCHER = """\
#!{python}
import sys

from {module} import {first}

if __name__ == "__main__":
    sys.exit({function}())
"""

#: The time that the builder gives every file of a package. The engine sets SOURCE_DATE_EPOCH to the
#: time of the build where no compiler's activation sets it again.
EPOCH = 1767225600

#: Reads names of modules. The bytecode holds the time that its source has in the package.
COMPILE = f"""\
import os, py_compile, sys
time, mode = {EPOCH}, py_compile.PycInvalidationMode.TIMESTAMP
for name in sys.stdin.read().splitlines():
    os.utime(name, (time, time))
    try:
        py_compile.compile(name, dfile=name, doraise=True, invalidation_mode=mode)
    except py_compile.PyCompileError as error:
        print("no bytecode:", error.msg.strip(), file=sys.stderr)
"""


def main() -> None:
    """Read the options and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", required=True, help="the target's Python, e.g. 3.11")
    parser.add_argument("--scripts", action="store_true", help="write bin/ scripts too")
    parser.add_argument(
        "--library",
        action="append",
        default=[],
        metavar="SONAME",
        help="a library that is in the prefix's lib/, not in the wheel",
    )
    parser.add_argument(
        "--exclude", action="append", default=[], metavar="GLOB", help="files that are left out"
    )
    parser.add_argument(
        "--distribution",
        metavar="NAME",
        help="the name in the installed metadata, instead of the wheel's own",
    )
    parser.add_argument(
        "--compiler", metavar="PROGRAM", help="the target's Python, to compile the modules with"
    )
    options = parser.parse_args()
    source, prefix = Path(os.environ["SRC_DIR"]), Path(os.environ["PREFIX"])
    wheels = sorted(source.glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"error: {source} holds {len(wheels)} wheels, expected one")
    with zipfile.ZipFile(wheels[0]) as wheel:
        site = prefix / "lib" / f"python{options.python}" / "site-packages"
        install(wheel, prefix, site, options)
        extract_licenses(wheel, source)
    if options.compiler:
        compile_modules(options.compiler, site)


def install(wheel: zipfile.ZipFile, prefix: Path, site: Path, options: argparse.Namespace) -> None:
    """Unpack each file to its place.

    INSTALLER and RECORD are left out: the builder gives every package its own.
    """
    info = dist_info(wheel)
    named = info
    if options.distribution:
        named = f"{options.distribution.replace('-', '_')}-{info.split('-', 1)[1]}"
    schemes = {
        "purelib": site,
        "platlib": site,
        "scripts": prefix / "bin",
        "data": prefix,
        "headers": prefix / "include" / f"python{options.python}" / info.split("-")[0],
    }
    links = set()
    skipped = {f"{info}/{name}" for name in ("RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER")}
    for member in sorted(wheel.infolist(), key=lambda m: m.filename):
        name = member.filename
        if member.is_dir() or name in skipped or name.endswith((".pyc", "/direct_url.json")):
            continue
        if any(fnmatch.fnmatchcase(name, glob) for glob in options.exclude):
            continue
        base, scheme, inner = site, None, PurePosixPath(name)
        if inner.parts[0].endswith(".data"):
            scheme = inner.parts[1]
            if scheme not in schemes or len(inner.parts) < 3:
                sys.exit(f"error: the wheel has a file in no folder of a wheel: {name}")
            base, inner = schemes[scheme], PurePosixPath(*inner.parts[2:])
        content = with_relative_rpaths(wheel.read(member), name)
        if inner.parts[0] == info:
            inner = PurePosixPath(named, *inner.parts[1:])
            if options.distribution and inner.name == "METADATA":
                content = renamed(content, options.distribution)
        folder = runpath_folder(content)
        if folder is not None:
            named_here = [n for n in options.library if n.encode() + b"\0" in content]
            folder = (base / inner.parent / folder).resolve()
            if named_here and prefix.resolve() not in folder.parents:
                sys.exit(f"error: {name}: its RUNPATH leads outside the prefix: {folder}")
            links |= {folder / soname for soname in named_here}
        if scheme == "scripts" and content.startswith(b"#!python"):
            content = content.replace(b"#!python", f"#!{prefix}/bin/python".encode(), 1)
        # A zip made on Windows has no modes: 0 means an ordinary file.
        executable = scheme == "scripts" or (member.external_attr >> 16) & 0o111
        write(base, inner, content, 0o755 if executable else 0o644)
    for link in sorted(links):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(prefix.resolve() / "lib" / link.name, link.parent))
    if options.scripts:
        for name, function in entry_points(wheel, info):
            text = launcher(f"{prefix}/bin/python", function)
            write(prefix / "bin", PurePosixPath(name), text.encode(), 0o755)


def renamed(metadata: bytes, name: str) -> bytes:
    """A METADATA file with another name of the distribution in its header."""
    return re.sub(rb"(?m)\A((?:.+\n)*?)Name: .*$", rb"\1Name: " + name.encode(), metadata, count=1)


def with_relative_rpaths(content: bytes, name: str) -> bytes:
    """An ELF file without the absolute entries of its RPATH or RUNPATH; other files as they are.

    Some wheels name folders of the machine that they were built on, which on another machine
    belong to anybody. The string is shortened in place: nothing else in the file moves.
    """
    edited = bytearray(content)
    base, rpaths = search_paths(content)
    for _, value in rpaths:
        start, end = base + value, content.index(b"\0", base + value)
        entries = content[start:end].split(b":")
        kept = b":".join(entry for entry in entries if entry.startswith(b"$ORIGIN"))
        if end - start != len(kept):
            refuse_shared(content, value, end - base, name)
            edited[start:end] = kept.ljust(end - start, b"\0")
    return bytes(edited)


def runpath_folder(content: bytes) -> str | None:
    """The first folder of a file's RUNPATH, relative to the file; None if it has none.

    What has a RUNPATH is not served by the rpath of the interpreter that loads it, so it finds
    the libraries in the prefix's lib/ by a link in that folder only.
    """
    base, rpaths = search_paths(content)
    for tag, value in rpaths:
        text = content[base + value : content.index(b"\0", base + value)].decode()
        if tag == RUNPATH and text:
            return text.split(":")[0].replace("$ORIGIN", ".", 1)
    return None


def search_paths(content: bytes) -> tuple[int, list[tuple[int, int]]]:
    """Where the dynamic strings begin, and (tag, place among them) of RPATH and RUNPATH."""
    if content[:6] != b"\x7fELF\x02\x01":  # 64 bits, little-endian: all our platforms
        return 0, []
    segments = headers(content, struct.unpack_from("<Q", content, 32)[0], 54, "<I4xQQ8xQ")
    tags = [
        struct.unpack_from("<QQ", content, at)
        for kind, offset, _, size in segments
        for at in (range(offset, offset + size, 16) if kind == PT_DYNAMIC else ())
    ]
    strings = next((value for tag, value in tags if tag == STRTAB), None)
    for kind, offset, address, size in segments:
        if kind == PT_LOAD and strings and address <= strings < address + size:
            base = offset + strings - address
            return base, [(tag, value) for tag, value in tags if tag in (RPATH, RUNPATH)]
    return 0, []


def headers(content: bytes, table: int, count_at: int, form: str) -> list[tuple[int, ...]]:
    """The entries of the table of segments (count at 54) or of sections (at 58)."""
    size, count = struct.unpack_from("<HH", content, count_at)
    return [struct.unpack_from(form, content, table + size * number) for number in range(count)]


def refuse_shared(content: bytes, first: int, last: int, name: str) -> None:
    """End with an error if a symbol's name is stored as the tail of the string at `first`."""
    (table,) = struct.unpack_from("<Q", content, 40)
    for kind, offset, size in headers(content, table, 58, "<4xI16xQQ"):
        for at in range(offset, offset + size, 24) if kind == SHT_DYNSYM else ():
            (symbol,) = struct.unpack_from("<I", content, at)
            if first <= symbol < last:
                sys.exit(f"error: {name}: its rpath shares bytes with a symbol's name")


def compile_modules(python: str, site: Path) -> None:
    """Compile every module: an environment whose owner is somebody else never could.

    One process in one order with one seed, so that the bytes are the same each time.
    """
    modules = sorted(str(path.relative_to(site)) for path in site.rglob("*.py"))
    # Without what site-packages and the current folder hold: nothing of the wheel is run.
    command = [python, "-s", "-S", "-B", "-P", "-c", COMPILE]
    env = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    text = "".join(f"{name}\n" for name in modules)
    done = subprocess.run(command, input=text, env=env, cwd=site, text=True, check=False)
    if done.returncode or (modules and not list(site.rglob("*.pyc"))):
        sys.exit(f"error: {python} compiled nothing (exit code {done.returncode})")


def dist_info(wheel: zipfile.ZipFile) -> str:
    """Name of the wheel's metadata folder."""
    for name in wheel.namelist():
        if re.fullmatch(r"[^/]+\.dist-info/WHEEL", name):
            return name.partition("/")[0]
    sys.exit(f"error: {wheel.filename} has no .dist-info/WHEEL")


def write(base: Path, inner: PurePosixPath, content: bytes, mode: int) -> None:
    """Write a file with the given permissions, never outside `base`, whatever links are in it."""
    if inner.is_absolute() or ".." in inner.parts:
        sys.exit(f"error: the wheel has a file outside its folder: {inner}")
    target, root = base / inner, base.resolve()
    if root not in (target.parent.resolve(), *target.parent.resolve().parents):
        sys.exit(f"error: {inner} would be written outside {base}, through a link")
    if target.is_symlink():
        sys.exit(f"error: {inner} is a link already")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(stat.S_IFREG | mode)


def entry_points(wheel: zipfile.ZipFile, info: str) -> list[tuple[str, str]]:
    """Script names with their `module:function`."""
    try:
        text = wheel.read(f"{info}/entry_points.txt").decode()
    except KeyError:
        return []
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
    parser.read_string(text)
    groups = [g for g in ("console_scripts", "gui_scripts") if parser.has_section(g)]
    found = sorted((k, v.split("[")[0].strip()) for g in groups for k, v in parser.items(g))
    for name, _ in found:
        if PurePosixPath(name).name != name:
            sys.exit(f"error: no name for a script: {name!r}")
    return found


def launcher(python: str, function: str) -> str:
    """A script that calls `module:function`."""
    module, _, attribute = function.partition(":")
    first = attribute.partition(".")[0]
    return LAUNCHER.format(python=python, module=module, first=first, function=attribute)


def extract_licenses(wheel: zipfile.ZipFile, folder: Path) -> None:
    """Licence texts to where the recipe's `license_file` looks for them."""
    usual = re.compile(
        r"[^/]+\.dist-info/(licenses/.*|(licen[cs]e|copying|notice|copyright)[^/]*)", re.I
    )
    for name in wheel.namelist():
        if usual.fullmatch(name) and not name.endswith("/"):
            write(folder, PurePosixPath(name), wheel.read(name), 0o644)


if __name__ == "__main__":
    main()
