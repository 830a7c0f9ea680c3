"""Makes the package of a build tool of Debian's packages: python3 install.py NAME PREFIX.

Run in the folder with the `.deb` files. The compiler in BUILD_PREFIX compiles the start program, by
which each tool runs on the package runtime_linux-64.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path.cwd() / "start"))

from debian import copy, library, unpack_all
from starter import HOST, Starter, by_compiler

#: Where the tools are in the prefix.
TOOLS = f"{HOST}/tools"


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        programs: its names in PREFIX/bin → Debian's in /usr/bin.
        libraries: what it loads beside the runtime.
        folders: Debian's folders below /usr, and where they go below `programs`. What comes later
            takes the place of what has its name.
        without: what is left out of them, as patterns.
        definitions: of the start program.
    """

    programs: dict[str, str]
    libraries: tuple[str, ...] = ()
    folders: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    definitions: tuple[str, ...] = ()


#: Modules of perl for libraries that are not here, and what extensions of perl are compiled with.
NO_LIBRARY = ("Compress/Raw/Bzip2", "DB_File", "GDBM_File", "NDBM_File", "ODBM_File")
NOT_FOR_BUILDS = (
    *(f"perl5/{name}.pm" for name in NO_LIBRARY),
    *(f"perl5/auto/{name}" for name in NO_LIBRARY),
    "perl5/CORE",
)

PACKAGES = {
    "m4": Tool({"m4": "m4"}),
    "make": Tool({"make": "make"}),
    "patch": Tool({"patch": "patch"}),
    "perl": Tool(
        {"perl": "perl"},
        ("libcrypt.so.1",),
        {
            "lib/x86_64-linux-gnu/perl-base": "perl5",
            "share/perl/5.36.0": "perl5",
            "lib/x86_64-linux-gnu/perl/5.36.0": "perl5",
        },
        NOT_FOR_BUILDS,
        # It looks for its modules where Debian has them, and takes the loader for itself.
        ('-DVARIABLE="PERL5LIB"', '-DVALUE="/programs/perl5"', '-DOPTION="-MOwnName"'),
    ),
    "pkg-config": Tool({"pkg-config": "pkgconf", "pkgconf": "pkgconf"}, ("libpkgconf.so.3",)),
    "tcl": Tool(
        {"tclsh": "tclsh8.6"},
        ("libtcl8.6.so",),
        # Debian's own place of Tcl's modules is an absolute one; this is where Tcl looks by itself.
        {"share/tcltk/tcl8.6": "tcl8.6", "share/tcltk/tcl8.6/tcl8": "tcl8/8.6"},
        ("tcl8.6/tcl8",),
        definitions=('-DVARIABLE="TCL_LIBRARY"', '-DVALUE="/programs/tcl8.6"'),
    ),
    "xz-tools": Tool({"xz": "xz", "unxz": "xz", "xzcat": "xz"}, ("liblzma.so.5",)),
}

#: Where Debian's Tcl looks for modules and packages of the machine: file, text, and ours.
OF_THE_MACHINE = (
    ("tm.tcl", "variable paths {/usr/share/tcltk/tcl8.6/tcl8}", "variable paths {}"),
    ("tm.tcl", "::tcl::tm::roots {/usr/lib/tcltk /usr/share/tcltk}", ""),
    ("init.tcl", "[info exists ::tcl_pkgPath]", "0"),
)

#: What perl calls itself (`$^X`): the start program, whose folder is four above this module's.
OWN_NAME = """\
package OwnName;
$^X = __FILE__ =~ s{/[^/]+/[^/]+/[^/]+/[^/]+/[^/]+$}{/bin/perl}r;
1;
"""


def main(name: str, prefix: Path) -> None:
    """Install a tool into the prefix."""
    work = Path.cwd()
    root = work / "debian"
    unpack_all(work, root, work / "copyright")
    tool = PACKAGES[name]
    programs = prefix / TOOLS / "programs"
    compiler = Path(os.environ["BUILD_PREFIX"], "bin", f"{HOST}-gcc")
    start = Starter(by_compiler(compiler), TOOLS, HOST, work, tool.definitions)
    for ours, theirs in tool.programs.items():
        copy(root / "usr" / "bin" / theirs, programs / ours)
        start.install(prefix, f"bin/{ours}")
    for soname in tool.libraries:
        copy(library(root, soname), programs / soname)
    for theirs, ours in tool.folders.items():
        copy(root / "usr" / theirs, programs / ours)
    for pattern in tool.without:
        for path in programs.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    if name == "perl":
        (programs / "perl5" / "OwnName.pm").write_text(OWN_NAME)
    if name == "tcl":
        for file, theirs, ours in OF_THE_MACHINE:
            path = programs / "tcl8.6" / file
            text = path.read_text()
            if text.count(theirs) != 1:
                sys.exit(f"{file} says {theirs!r} {text.count(theirs)} times, not once")
            path.write_text(text.replace(theirs, ours))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
