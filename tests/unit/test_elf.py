"""The one reader of ELF files."""

from __future__ import annotations

import io
import subprocess
from pathlib import Path

import pytest

from ddlce.elf import BrokenElfError, machine_number, parse_elf, read_elf
from ddlce.errors import SourceError
from ddlce.sources.wheelfile import read_wheel
from support.wheelfiles import make_wheel

REPO = Path(__file__).parents[2]

#: Says that it is a library of 64 bits whose sections lie behind its end.
BROKEN = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x03\x00\x3e\x00" + b"\xff" * 60


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("elf") / "libtoy.so"
    subprocess.run(
        [
            *("gcc", "-shared", "-xc", "-", "-o", path, "-Wl,-soname,libtoy.so.1"),
            *("-Wl,-rpath,$ORIGIN:/opt/lib", "-Wl,--disable-new-dtags"),
            *("-Wl,--no-as-needed", "-lm"),
        ],
        input=b"int toy(void){return 1;}",
        check=True,
    )
    return path.read_bytes()


def test_a_library(library: bytes) -> None:
    elf = parse_elf(io.BytesIO(library))
    assert elf == read_elf(library)
    assert elf is not None
    assert (elf.soname, elf.rpaths, elf.inherited) == ("libtoy.so.1", ("$ORIGIN", "/opt/lib"), True)
    assert "libm.so.6" in elf.needed
    assert elf.interpreter == ""


@pytest.mark.parametrize("data", [b"", b"text", b"\x7fELF", BROKEN])
def test_a_broken_file(data: bytes) -> None:
    assert read_elf(data) is None
    with pytest.raises(BrokenElfError, match=r"."):
        parse_elf(io.BytesIO(data))


def test_machines_have_their_numbers() -> None:
    assert (machine_number("EM_X86_64"), machine_number("EM_PPC64")) == (62, 21)


def test_a_wheel_with_a_broken_library_is_named(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, files={"demo/x.so": BROKEN})
    with pytest.raises(SourceError, match=r"^x\.so inside the wheel: a broken ELF file: ."):
        read_wheel(wheel)


def test_a_wheel_s_libraries(tmp_path: Path, library: bytes) -> None:
    wheel = make_wheel(tmp_path, files={"demo/libtoy.so": library})
    assert read_wheel(wheel).needed == []


@pytest.mark.parametrize("path", sorted((REPO / "scripts").rglob("*.py")), ids=lambda p: p.stem)
def test_nobody_else_reads_them(path: Path) -> None:
    assert "elftools" not in path.read_text() or path == REPO / "scripts/ddlce/elf.py"
