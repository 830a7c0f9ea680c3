"""What the audit asks about the C library: the machine's, or the package glibc in the prefix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from packaging.version import Version

from ddlce.audit import audit_package
from ddlce.audit.facts import read_facts
from ddlce.elf import glibc_version, read_elf
from support.run import run
from support.synthetic import compile_c, make_package, rewrite

MACHINES = "__glibc >=2.36,<3.0.a0"
OWN = "glibc >=2.41"
LIBM = ("-xnone", "-lm")
HINT = "; link it with $LDFLAGS, as stdlib('c') sets them"


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    return tmp_path / "channel"


def pack(channel: Path, files: Path, name: str, *depends: str) -> Path:
    return make_package(channel / "linux-64", files, name, depends=depends)


def registered(package: Path, path: str, prefix: Path) -> Path:
    """The package with a file in which the prefix is to be replaced."""
    entries = [dict(entry) for entry in read_facts(package).paths]
    entry = next(entry for entry in entries if entry["_path"] == path)
    entry |= {"prefix_placeholder": str(prefix), "file_mode": "binary"}
    return rewrite(package, {"paths.json": {"paths": entries}})


def says(package: Path, channel: Path | None = None) -> list[str]:
    return [str(finding) for finding in audit_package(package, channel=channel)]


@pytest.fixture
def glibc(channel: Path, tmp_path: Path) -> Path:
    """The package of a C library in the prefix: of this machine's, its loader and libm."""
    folder = tmp_path / "glibc" / "lib" / "glibc"
    folder.mkdir(parents=True)
    listed = run(["ldd", "/bin/bash"], check=True).stdout
    libc = next(line.split()[2] for line in listed.splitlines() if "libc.so.6" in line)
    for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2"):
        shutil.copy(Path(libc).parent / name, folder / name)
    return make_package(channel / "linux-64", tmp_path / "glibc", "glibc")


def test_a_glibc_needs_no_glibc(channel: Path, glibc: Path) -> None:
    assert says(glibc, channel) == []


def program(prefix: Path, loader: str, *flags: str) -> Path:
    source = "#include <math.h>\nint main(int n, char **v){return v && sin(n);}"
    compile_c(prefix / "bin/tool", source, f"-Wl,--dynamic-linker,{loader}", *flags, *LIBM)
    return prefix


def test_a_program_on_the_prefix_s_glibc(channel: Path, glibc: Path, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    to_glibc = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../lib/glibc"
    program(tool, f"{tool}/lib/glibc/ld64.so.2", to_glibc)
    package = registered(pack(channel, tool, "tool", OWN), "bin/tool", tool)
    assert says(package, channel) == []


def test_a_program_on_the_machine_s_glibc(channel: Path, glibc: Path, tmp_path: Path) -> None:
    tool = program(tmp_path / "tool", "/lib64/ld64.so.2")
    assert says(pack(channel, tool, "tool", OWN), channel) == [
        "needed bin/tool: needs libm.so.6, which is in glibc, where no rpath leads",
        f"loader bin/tool: names the loader /lib64/ld64.so.2, not the one in lib/glibc{HINT}",
    ]


def test_a_loader_that_is_not_depended_on(channel: Path, tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    program(tool, f"{tool}/lib/glibc/ld64.so.2")
    package = registered(pack(channel, tool, "tool", MACHINES), "bin/tool", tool)
    assert says(package, channel) == [
        f"loader bin/tool: names a loader of glibc, which is not in depends{HINT}"
    ]


@pytest.mark.parametrize(
    "flags", ["", "-Wl,--disable-new-dtags,-rpath,$ORIGIN", "-Wl,-rpath,$ORIGIN/../lib/glibc"]
)
def test_a_program_that_would_find_the_machine_s_libc(
    channel: Path, glibc: Path, tmp_path: Path, flags: str
) -> None:
    """With the right loader, but no RPATH, one to elsewhere, or one that is not inherited."""
    tool = tmp_path / "tool"
    loader = f"-Wl,--dynamic-linker,{tool}/lib/glibc/ld64.so.2"
    source = "int main(void){return 0;}"
    compile_c(tool / "bin/tool", source, loader, "-Wl,--as-needed", *filter(None, [flags]))
    package = registered(pack(channel, tool, "tool", OWN), "bin/tool", tool)
    problem = "has no RPATH to lib/glibc, for itself and all that it loads"
    assert f"loader bin/tool: {problem}{HINT}" in says(package, channel)


def test_a_floor_above_the_package_s(channel: Path, glibc: Path, tmp_path: Path) -> None:
    compile_c(
        tmp_path / "new/lib/libnew.so.1",
        "int getpid(void); int one(void){return getpid();}",
        "-shared",
        "-fPIC",
    )
    assert says(pack(channel, tmp_path / "new", "new", "glibc >=2.1"), channel) == [
        "glibc-floor lib/libnew.so.1: needs glibc 2.2.5; depends declares 2.1"
    ]


def test_a_library_finds_what_its_program_leads_to(
    channel: Path, glibc: Path, tmp_path: Path
) -> None:
    source = "#include <math.h>\ndouble wave(double x){return sin(x);}"
    compile_c(tmp_path / "wave/lib/libwave.so.1", source, "-shared", "-fPIC", *LIBM)
    assert says(pack(channel, tmp_path / "wave", "wave", OWN), channel) == []


@pytest.mark.parametrize(
    ("depends", "declared"),
    [(("other",), "none"), (("__glibc >=2.3,<3.0.a0",), "2.3")],
)
def test_glibc_floor(
    channel: Path, tmp_path: Path, depends: tuple[str, ...], declared: str
) -> None:
    folder = tmp_path / "new"
    compile_c(folder / "bin/new", "#include <unistd.h>\nint main(void){return getpid();}")
    elf = read_elf((folder / "bin/new").read_bytes())
    assert elf is not None
    assert says(pack(channel, folder, "new", *depends)) == [
        f"glibc-floor bin/new: needs glibc {elf.glibc}; depends declares {declared}"
    ]


def test_glibc_floor_agrees_with_objdump(tmp_path: Path) -> None:
    library = tmp_path / "libone.so.1"
    source = '#include <stdio.h>\nint one(void){return puts("one");}\n'
    compile_c(library, source, "-shared", "-fPIC")
    elf = read_elf(library.read_bytes())
    dump = run(["objdump", "-T", library], check=True).stdout
    assert elf is not None
    assert elf.glibc
    assert f"GLIBC_{elf.glibc})" in dump


def test_a_symbol_version_names_its_glibc() -> None:
    assert glibc_version("GLIBC_2.2.5") == Version("2.2.5")
    assert glibc_version("GLIBC_ABI_DT_RELR") == Version("2.36")
    assert glibc_version("GLIBC_PRIVATE") is None
    assert glibc_version("GLIBCXX_3.4.30") is None
