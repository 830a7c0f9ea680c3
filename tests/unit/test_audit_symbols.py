"""What the audit asks about symbols: none above the floor, none that nobody has."""

from __future__ import annotations

from pathlib import Path

import pytest

from ddlce.audit import audit_package
from ddlce.audit.facts import read_exports
from ddlce.elf import read_elf
from ddlce.errors import WorkError
from support.synthetic import compile_c, make_package

GLIBC = "__glibc >=2.28,<3.0.a0"

#: Asks for symbols of two releases, whatever the machine's glibc gives by default.
TWO_RELEASES = """
__asm__(".symver old_memcpy, memcpy@GLIBC_2.2.5");
__asm__(".symver new_memcpy, memcpy@GLIBC_2.14");
void *old_memcpy(void *, const void *, unsigned long);
void *new_memcpy(void *, const void *, unsigned long);
void *copy(void *a, const void *b) { return new_memcpy(old_memcpy(a, b, 1), b, 2); }
"""

SHARED = ("-shared", "-fPIC")


@pytest.fixture
def channel(tmp_path: Path) -> Path:
    return tmp_path / "channel"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    return tmp_path / "prefix"


def pack(channel: Path, files: Path, name: str = "one", *depends: str) -> Path:
    return make_package(channel / "linux-64", files, name, depends=depends or (GLIBC,))


def says(package: Path, channel: Path | None = None, floor: str = "") -> list[str]:
    return [str(finding) for finding in audit_package(package, (), channel, floor)]


def test_an_elf_file_tells_its_symbols(prefix: Path) -> None:
    library = prefix / "lib/libtwo.so.1"
    weak = "int later(void) __attribute__((weak)); int strong(void);"
    source = f"{TWO_RELEASES}{weak} int use(void) {{ return strong() + (later ? 1 : 0); }}"
    compile_c(library, source, *SHARED)
    elf = read_elf(library.read_bytes())
    assert elf is not None
    assert elf.undefined == {"strong"}
    assert {"copy", "use"} <= elf.exports
    assert "strong" not in elf.exports
    assert elf.wants["GLIBC_2.14"] == ("memcpy",)
    assert "memcpy" in elf.wants["GLIBC_2.2.5"]


def test_a_symbol_above_the_floor_is_named(channel: Path, prefix: Path) -> None:
    compile_c(prefix / "lib/libtwo.so.1", TWO_RELEASES, *SHARED)
    package = pack(channel, prefix)
    for floor in ("", "2.14", "2.28"):
        assert [s for s in says(package, floor=floor) if "libtwo" in s] == []
    above = [s for s in says(package, floor="2.13") if "libtwo" in s]
    assert above == [
        "glibc-above lib/libtwo.so.1: needs memcpy of GLIBC_2.14, above 2.13, the floor; "
        "compile with $CC, whose C library is the sysroot's"
    ]


def test_the_metadata_declare_no_more_than_the_floor(channel: Path, prefix: Path) -> None:
    compile_c(prefix / "lib/libone.so.1", "int one(void) { return 1; }", *SHARED)
    package = pack(channel, prefix, "one", "__glibc >=2.31,<3.0.a0")
    assert says(package, floor="2.31") == []
    assert says(package, floor="2.28") == [
        "glibc-above info/index.json: declares glibc 2.31, above 2.28, the floor"
    ]


def test_a_symbol_that_nobody_has(channel: Path, prefix: Path, tmp_path: Path) -> None:
    source = "int lost(void); int other(void); int use(void) { return lost() + other(); }"
    compile_c(prefix / "lib/libuse.so.1", source, *SHARED)
    compile_c(prefix / "lib/libother.so.1", "int other(void) { return 2; }", *SHARED)
    package = pack(channel, prefix)
    assert says(package) == []  # nothing is known of what stands beside it
    lost = "undefined lib/libuse.so.1: needs lost, without a version, which is in no library"
    assert says(package, channel) == [f"{lost} beside it"]
    # In a library two packages below; which one loads it is not asked.
    compile_c(tmp_path / "base/lib/liblost.so.1", "int lost(void) { return 1; }", *SHARED)
    (tmp_path / "middle/share").mkdir(parents=True)
    (tmp_path / "middle/share/middle").write_text("x")
    base = pack(channel, tmp_path / "base", "base")
    pack(channel, tmp_path / "middle", "middle", "base")
    assert read_exports(base) >= {"lost"}
    assert says(pack(channel, prefix, "one", GLIBC, "middle"), channel) == []


def test_what_glibc_had_at_the_floor_is_there_unnamed(channel: Path, prefix: Path) -> None:
    """As in a wheel that was not linked with libm; `gettid` came with 2.30."""
    source = "double floor(double); int gettid(void); double use(double x) { return %s; }"
    library = prefix / "lib/libuse.so.1"
    alone = ("-nostdlib", "-fno-builtin")
    compile_c(library, source % "floor(x)", *SHARED, *alone)
    elf = read_elf(library.read_bytes())
    assert elf is not None
    assert elf.undefined == {"floor"}
    assert says(pack(channel, prefix), channel, "2.28") == []
    compile_c(library, source % "gettid()", *SHARED, *alone)
    assert says(pack(channel, prefix), channel, "2.30") == []
    (found,) = says(pack(channel, prefix), channel, "2.28")
    assert found.startswith("undefined lib/libuse.so.1: needs gettid, without a version")


@pytest.mark.parametrize("name", ["pthread_once", "pthread_sigmask"])  # joined in 2.34, in 2.32
def test_what_was_in_a_library_apart_at_the_floor_is_named(
    channel: Path, prefix: Path, tmp_path: Path, name: str
) -> None:
    """Before 2.34, `pthread_once` was in libpthread, which a C++ program need not name."""
    source = f"int {name}(void); int use(void) {{ return {name}(); }}"
    library = prefix / "lib/libuse.so.1"
    alone = ("-nostdlib", "-fno-builtin")
    compile_c(library, source, *SHARED, *alone)
    assert says(pack(channel, prefix), channel, "2.34") == []
    (found,) = says(pack(channel, prefix), channel, "2.28")
    assert found.startswith(f"undefined lib/libuse.so.1: needs {name}, without a version")
    assert found.endswith("; link it with -pthread or -ldl")
    apart = tmp_path / "machine/libpthread.so.0"
    compile_c(apart, "int other(void);", *SHARED, "-Wl,-soname,libpthread.so.0")
    compile_c(library, source, *SHARED, *alone, "-Wl,--no-as-needed", "-xnone", str(apart))
    assert says(pack(channel, prefix), channel, "2.28") == []
    # Python names all of them, for its extensions.
    library.unlink()
    extension = prefix / "lib/python3.11/site-packages/use.so"
    extension.parent.mkdir(parents=True)
    compile_c(extension, source, *SHARED, *alone)
    assert says(pack(channel, prefix), channel, "2.28") == []


def test_many_lost_symbols_are_counted(channel: Path, prefix: Path) -> None:
    names = [f"lost{n}" for n in range(7)]
    source = "".join(f"int {name}(void);" for name in names)
    source += f"int use(void) {{ return {'+'.join(f'{name}()' for name in names)}; }}"
    compile_c(prefix / "lib/libuse.so.1", source, *SHARED)
    (found,) = says(pack(channel, prefix), channel)
    assert "needs lost0, lost1, lost2, lost3, lost4 and 2 more, without a version" in found


def test_what_a_driver_has_is_not_known(channel: Path, prefix: Path, tmp_path: Path) -> None:
    driver = tmp_path / "machine/libcuda.so.1"
    compile_c(driver, "int cuInit(void);", *SHARED, "-Wl,-soname,libcuda.so.1")
    source = "int cuInit(void); int use(void) { return cuInit(); }"
    flags = ("-Wl,--no-as-needed", "-xnone", str(driver))
    compile_c(prefix / "lib/libuse.so.1", source, *SHARED, *flags)
    assert says(pack(channel, prefix), channel) == []


def test_an_unreadable_package_below(tmp_path: Path) -> None:
    (tmp_path / "broken-1.0-h0_0.conda").write_bytes(b"PK")
    with pytest.raises(WorkError, match="cannot be read"):
        read_exports(tmp_path / "broken-1.0-h0_0.conda")
