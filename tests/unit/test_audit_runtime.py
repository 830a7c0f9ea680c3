"""Programs that bring their own C library, as the packages of compilers do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.audit import audit_package
from ddlce.elf import machine_number
from support.synthetic import make_package

GCC, RUNTIME = "x86_64-conda-linux-gnu/gcc", "x86_64-conda-linux-gnu/runtime"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """bash beside what it loads: Debian's, which need a newer glibc than packages may."""
    for folder in (f"{GCC}/programs/parts", RUNTIME):
        (tmp_path / "prefix" / folder).mkdir(parents=True)
    for name in ("bash", "parts/bash"):
        shutil.copy("/bin/bash", tmp_path / "prefix" / GCC / "programs" / name)
    listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path = next((Path(word) for word in line.split() if word.startswith("/")), None)
        if path:
            shutil.copy(path, tmp_path / "prefix" / RUNTIME / path.name)
    return tmp_path / "prefix"


def says(channel: Path, prefix: Path, name: str = "one", *depends: str) -> list[str]:
    package = make_package(channel / "linux-64", prefix, name, depends=depends)
    return [str(each) for each in audit_package(package, channel=channel, floor="2.28")]


def test_they_may_need_a_newer_glibc_than_the_floor(tmp_path: Path, prefix: Path) -> None:
    assert says(tmp_path, prefix) == []


def test_what_they_load_must_be_beside_them(tmp_path: Path, prefix: Path) -> None:
    library = next((prefix / RUNTIME).glob("libtinfo*"))
    library.rename(prefix / GCC / "programs" / library.name)
    assert says(tmp_path, prefix) == []
    (prefix / GCC / "programs" / library.name).unlink()
    assert says(tmp_path, prefix, "two") == [
        f"runtime {GCC}/programs/{name}: needs {library.name}, "
        f"which is not in {GCC}/programs and {RUNTIME}"
        for name in ("bash", "parts/bash")
    ]


def test_the_runtime_may_be_a_dependency_s(tmp_path: Path, prefix: Path) -> None:
    other = tmp_path / "other"
    (other / GCC).mkdir(parents=True)
    (prefix / GCC / "programs").rename(other / GCC / "programs")
    assert says(tmp_path, prefix, "below") == []
    assert says(tmp_path, other, "above", "below") == []
    assert says(tmp_path, other, "alone") != []


def test_without_a_runtime_they_are_programs_like_others(tmp_path: Path, prefix: Path) -> None:
    shutil.rmtree(prefix / RUNTIME)
    assert any(finding.startswith("glibc-above ") for finding in says(tmp_path, prefix))


def test_beside_its_programs_a_compiler_has_libraries_of_its_target(
    tmp_path: Path, prefix: Path
) -> None:
    library = prefix / GCC / "lib" / "libtarget.so"
    library.parent.mkdir()
    data = bytearray(Path("/bin/bash").read_bytes())
    data[18:20] = machine_number("EM_PPC64").to_bytes(2, "little")
    library.write_bytes(data)
    assert says(tmp_path, prefix) == []
    elsewhere = prefix / "lib" / "libtarget.so"
    elsewhere.parent.mkdir()
    library.rename(elsewhere)
    wrong = "machine lib/libtarget.so: is for EM_PPC64, not for linux-64"
    assert wrong in says(tmp_path, prefix, "two")
