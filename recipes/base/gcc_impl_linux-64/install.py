"""Makes the packages of the compiler of Debian's packages: python3 install.py gcc|gxx PREFIX.

Run in the folder with the `.deb` files. It needs Python's standard library and no compiler: the
start program that stands in each program's place is compiled by the very compiler it is for.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

TRIPLE, MAJOR = "x86_64-linux-gnu", "12"

#: The name that conda-forge gives the target, which begins the names of programs.
HOST = "x86_64-conda-linux-gnu"

#: Where the compiler is in the prefix, as the start program finds it.
GCC = f"{HOST}/gcc"
PARTS = f"lib/gcc/{TRIPLE}/{MAJOR}"

#: The drivers of each package.
DRIVERS = {"gcc": ("gcc", "gcc-ar", "gcc-nm", "gcc-ranlib"), "gxx": ("g++",)}
PREPROCESSOR = ("cpp",)

#: What else build scripts call them.
OTHER_NAMES = {"gcc": "cc", "gxx": "c++"}
INNER = {"gcc": ("cc1", "collect2", "lto1", "lto-wrapper"), "gxx": ("cc1plus",)}
BINUTILS = (
    *("addr2line", "ar", "as", "c++filt", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf"),
    *("size", "strings", "strip"),
)
#: Those that GCC's programs start, or look for.
FOR_GCC = ("ar", "as", "ld", "nm", "objcopy", "ranlib", "strip")

#: What the programs load.
LIBRARIES = (
    *("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libz.so.1", "libzstd.so.1"),
    *("libgmp.so.10", "libmpfr.so.6", "libmpc.so.3", "libisl.so.23", "libjansson.so.4"),
    *("libbfd-2.40-system.so", "libopcodes-2.40-system.so", "libsframe.so.0"),
    *("libctf.so.0", "libctf-nobfd.so.0"),
)

#: What GCC links and includes. Not libgomp.a: its TLS model keeps it out of shared libraries. Not
#: libgcc_eh.a (-static-libgcc): Debian's needs glibc 2.35. Not the sanitizers, which need libraries
#: that no package has.
TARGET_FILES = (
    *("crt*.o", "include", "libgcc.a", "libgcov.a", "libgomp.spec"),
    *("libssp_nonshared.a",),
)

#: For users' programs: the environment's libraries are found without a variable. `DDLCE_PREFIX`
#: is the start program's, which leaves this file out where packages are built.
RUNPATH = "*link:\n+ %{!static:%{!static-pie:-rpath %:getenv(DDLCE_PREFIX /lib)}}\n\n"

#: As the start program is compiled: alone, small, the same bytes on any machine.
COMPILE = (
    "-quiet",
    "-Os",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fno-pie",
    "-fcf-protection=none",
)
COMPILE += ("-fno-asynchronous-unwind-tables", "-imultiarch", TRIPLE)
LINK = ("-static", "-no-pie", "-s", "--build-id=none", "-z", "noseparate-code", "-z", "noexecstack")


def main(package: str, prefix: Path) -> None:
    """Install one of the packages into the prefix."""
    work = Path.cwd()
    root = work / "debian"
    sources = [(path.name, *unpack(path, root)) for path in sorted(work.glob("*.deb"))]
    write_licences(root, sources, work / "copyright")
    start = Starter(root, work)
    gcc = prefix / GCC
    bin_ = root / "usr" / "bin"
    for name in (*DRIVERS[package], *(PREPROCESSOR if package == "gcc" else ())):
        copy(bin_ / f"{TRIPLE}-{name}-{MAJOR}", gcc / "programs" / name)
        start.install(prefix / "bin" / f"{HOST}-{name}", 1, f"/{GCC}")
        start.install(gcc / "bin" / name, 1, "")
    (gcc / "bin" / OTHER_NAMES[package]).symlink_to(DRIVERS[package][0])
    for name in INNER[package]:
        copy(root / "usr" / PARTS / name, gcc / "programs" / name)
        start.install(gcc / PARTS / name, 4, "")
    if package == "gxx":
        return
    for name in BINUTILS:
        copy(bin_ / f"{TRIPLE}-{name}", gcc / "programs" / name)
        start.install(prefix / "bin" / f"{HOST}-{name}", 1, f"/{GCC}")
        start.install(gcc / "bin" / name, 1, "")
    for name in FOR_GCC:
        start.install(gcc / TRIPLE / "bin" / name, 2, "")
    for name in LIBRARIES:
        copy(start.library(name), gcc / "runtime" / name)
    for pattern in TARGET_FILES:
        for path in sorted((root / "usr" / PARTS).glob(pattern)):
            copy(path, gcc / PARTS / path.name)
    # ld and ar load it, so it is of the programs' world.
    copy(root / "usr" / PARTS / "liblto_plugin.so", gcc / "programs" / "liblto_plugin.so")
    (gcc / PARTS / "liblto_plugin.so").symlink_to("../../../../programs/liblto_plugin.so")
    (gcc / "runpath.specs").write_text(RUNPATH)


class Starter:
    """Compiles the start program, for each place where it stands."""

    def __init__(self, root: Path, work: Path) -> None:
        self._root, self._work = root, work
        self._made: dict[tuple[int, str], Path] = {}

    def install(self, path: Path, up: int, down: str) -> None:
        """Put it there; from its folder, the compiler is `up` folders up, then `down`."""
        if (up, down) not in self._made:
            self._made[up, down] = self._compile(up, down)
        copy(self._made[up, down], path)

    def _compile(self, up: int, down: str) -> Path:
        names = [self._work / f"start{len(self._made)}{ending}" for ending in (".s", ".o", "")]
        assembly, object_, program = names
        defines = (f"-DUP={up}", f'-DDOWN="{down}"', f'-DTRIPLE="{HOST}"')
        source = Path(__file__).with_name("start.c")
        bin_ = self._root / "usr" / "bin" / TRIPLE
        self._run(self._root / "usr" / PARTS / "cc1", *COMPILE, *defines, source, "-o", assembly)
        self._run(Path(f"{bin_}-as"), assembly, "-o", object_)
        self._run(Path(f"{bin_}-ld.bfd"), *LINK, object_, "-o", program)
        return program

    def _run(self, program: Path, *arguments: str | Path) -> None:
        folders = (self._root / folder / TRIPLE for folder in ("lib", "usr/lib"))
        loader = self.library("ld-linux-x86-64.so.2")
        options = ("--library-path", ":".join(map(str, folders)))
        subprocess.run([loader, *options, program, *arguments], check=True)

    def library(self, name: str) -> Path:
        """Where Debian has it."""
        places = (self._root / folder / TRIPLE / name for folder in ("lib", "usr/lib"))
        return next(path for path in places if path.exists())


def copy(source: Path, target: Path) -> None:
    """A copy of the file that a name means, or of a folder, with modes of its own."""
    if source.is_dir():
        for path in sorted(source.iterdir()):
            copy(path, target / path.name)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source.resolve(), target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def unpack(deb: Path, root: Path) -> tuple[str, str]:
    """Unpack a Debian package; returns its source package's name and version."""
    source = ""
    for name, data in members(deb.read_bytes()):
        if name.startswith("control.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                file = archive.extractfile("./control")
                assert file, f"{deb}: no control file"
                source = file.read().decode()
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(data)) as archive:
                archive.extractall(root)
    fields = dict(line.split(": ", 1) for line in source.splitlines() if ": " in line)
    name, _, version = fields.get("Source", fields["Package"]).partition(" (")
    return name, version.rstrip(")") or fields["Version"]


def members(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an `ar` archive."""
    place = 8
    while place < len(archive):
        header = archive[place : place + 60]
        size = int(header[48:58])
        yield header[:16].decode().strip().rstrip("/"), archive[place + 60 : place + 60 + size]
        place += 60 + size + size % 2


def write_licences(root: Path, sources: list[tuple[str, str, str]], folder: Path) -> None:
    """Each package's copyright, and where the source of what is inside is to be had."""
    folder.mkdir()
    lines = [
        "The programs are Debian's. `apt-get source NAME=VERSION` on Debian fetches their source"
    ]
    lines += [
        "with patches and build scripts, and `ddlce sources add debian-source:NAME=VERSION` does."
    ]
    names = sorted({(source, version) for _, source, version in sources})
    lines += ["", *(f"  {source}={version}" for source, version in names), ""]
    (folder / "SOURCES").write_text("\n".join(lines))
    for path in sorted((root / "usr" / "share" / "doc").glob("*/copyright")):
        if not path.parent.is_symlink():
            shutil.copyfile(path, folder / path.parent.name)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
