"""Programs that bring their own C library, as the packages of compilers do."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ddlce.audit import audit_package
from support.synthetic import make_package

GCC = "x86_64-conda-linux-gnu/gcc"


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """bash beside what it loads: Debian's, which need a newer glibc than packages may."""
    gcc = tmp_path / "prefix" / GCC
    for folder in ("programs", "runtime"):
        (gcc / folder).mkdir(parents=True)
    shutil.copy("/bin/bash", gcc / "programs" / "bash")
    listed = subprocess.run(["ldd", "/bin/bash"], capture_output=True, text=True, check=True).stdout
    for line in listed.splitlines():
        path = next((Path(word) for word in line.split() if word.startswith("/")), None)
        if path:
            shutil.copy(path, gcc / "runtime" / path.name)
    return tmp_path / "prefix"


def says(channel: Path, prefix: Path, name: str = "one", *depends: str) -> list[str]:
    package = make_package(channel / "linux-64", prefix, name, depends=depends)
    return [str(each) for each in audit_package(package, channel=channel, floor="2.28")]


def test_they_may_need_a_newer_glibc_than_the_floor(tmp_path: Path, prefix: Path) -> None:
    assert says(tmp_path, prefix) == []


def test_what_they_load_must_be_beside_them(tmp_path: Path, prefix: Path) -> None:
    gone = next((prefix / GCC / "runtime").glob("libtinfo*"))
    gone.unlink()
    assert says(tmp_path, prefix) == [
        f"runtime {GCC}/programs/bash: needs {gone.name}, which {GCC}/runtime has not"
    ]


def test_the_runtime_may_be_a_dependency_s(tmp_path: Path, prefix: Path) -> None:
    other = tmp_path / "other"
    (other / GCC).mkdir(parents=True)
    (prefix / GCC / "programs").rename(other / GCC / "programs")
    assert says(tmp_path, prefix, "below") == []
    assert says(tmp_path, other, "above", "below") == []
    assert says(tmp_path, other, "alone") != []


def test_without_a_runtime_they_are_programs_like_others(tmp_path: Path, prefix: Path) -> None:
    shutil.rmtree(prefix / GCC / "runtime")
    assert any(finding.startswith("glibc-above ") for finding in says(tmp_path, prefix))
