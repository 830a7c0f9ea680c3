"""The build script of NVIDIA's packages: every file in its place, as it is."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from support.nvidiafiles import cuda12_wheel, toolkit_wheel
from support.run import ok, run
from support.wheelfiles import make_wheel

SCRIPT = Path(__file__).parents[2] / "recipes" / "nvidia" / "install_nvidia.py"
INFO = "lib/python3.11/site-packages/nvidia_demo-13.0.5.dist-info"
RUNTIME = {"lib/libdemo.so.1", f"{INFO}/METADATA", f"{INFO}/WHEEL", f"{INFO}/licenses/LICENSE"}
DEVELOPMENT = {"lib/libdemo.so", "lib/libdemo_static.a", "include/demo.h", "bin/demo"}


def install(
    source: Path, prefix: Path, part: str, *options: str, script: Path = SCRIPT
) -> subprocess.CompletedProcess[str]:
    return run(
        [sys.executable, str(script), "--python", "3.11", "--part", part, *options],
        env={**os.environ, "SRC_DIR": str(source), "PREFIX": str(prefix)},
    )


def files(prefix: Path) -> set[str]:
    found = prefix.rglob("*")
    return {str(p.relative_to(prefix)) for p in found if p.is_symlink() or p.is_file()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "src"
    folder.mkdir()
    toolkit_wheel(folder)
    return folder


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("runtime", RUNTIME),
        ("development", DEVELOPMENT),
        ("all", RUNTIME | DEVELOPMENT),
    ],
)
def test_each_part_has_its_files(
    source: Path, tmp_path: Path, part: str, expected: set[str]
) -> None:
    ok(install(source, tmp_path / "prefix", part))
    assert files(tmp_path / "prefix") == expected


def test_files_are_as_in_the_wheel(source: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    assert install(source, prefix, "all").returncode == 0
    with zipfile.ZipFile(next(source.glob("*.whl"))) as wheel:
        for name in ("lib/libdemo.so.1", "include/demo.h", "bin/demo"):
            assert (prefix / name).read_bytes() == wheel.read(f"nvidia/cu13/{name}")
    assert (prefix / "bin/demo").stat().st_mode & 0o777 == 0o755
    assert (prefix / "include/demo.h").stat().st_mode & 0o777 == 0o644
    assert str((prefix / "lib/libdemo.so").readlink()) == "libdemo.so.1"
    assert ctypes.CDLL(str(prefix / "lib/libdemo.so")).answer() == 42


def test_the_licence_lies_where_the_recipe_looks_for_it(source: Path, tmp_path: Path) -> None:
    assert install(source, tmp_path / "prefix", "development").returncode == 0
    assert (source / "nvidia_demo-13.0.5.dist-info/licenses/LICENSE").is_file()


@pytest.mark.parametrize(
    ("content", "part", "message"),
    [
        ({"nvidia/cu13/share/x": b""}, "all", "a file in no folder of a toolkit: nvidia/cu13/sh"),
        ({"demo/__init__.py": b""}, "all", "a file in no folder of a toolkit: demo/__init__.py"),
        ({"nvidia/cu13/include/../../../x": b""}, "all", "outside its folder"),
        ({"nvidia/cu13/lib/libx.so.1": b"x"}, "nothing", "invalid choice: 'nothing'"),
    ],
)
def test_bad_wheels_and_options(
    tmp_path: Path, content: dict[str, bytes], part: str, message: str
) -> None:
    source = tmp_path / "src"
    source.mkdir()
    make_wheel(source, files=content, module=False)
    done = install(source, tmp_path / "prefix", part)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_part_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    make_wheel(source, files={"nvidia/cu13/lib/x": b""}, module=False, license_text=None)
    (source / "two.whl").write_bytes(b"")
    assert "holds 2 wheels" in install(source, tmp_path / "prefix", "all").stderr
    (source / "two.whl").unlink()
    headers = tmp_path / "headers"
    headers.mkdir()
    toolkit = {"nvidia/cu13/lib/libx.so": b"x"}
    make_wheel(headers, files=toolkit, module=False, license_text=None)
    done = install(headers, tmp_path / "prefix", "development")
    assert "nothing for the part development" in done.stderr


def test_libraries_may_stay_where_the_wheel_has_them(source: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    assert install(source, prefix, "all", "--libraries-in-place").returncode == 0
    library = "lib/python3.11/site-packages/nvidia/cu13/lib/libdemo.so.1"
    assert files(prefix) == (RUNTIME | DEVELOPMENT | {library}) - {"lib/libdemo.so.1"}
    assert (prefix / "lib/libdemo.so").resolve() == (prefix / library).resolve()


def test_what_is_excluded_is_left_out(source: Path, tmp_path: Path) -> None:
    options = ("--exclude", "lib/*.a", "--exclude", "bin/*")
    ok(install(source, tmp_path / "prefix", "all", *options))
    left_out = {"lib/libdemo_static.a", "bin/demo"}
    assert files(tmp_path / "prefix") == (RUNTIME | DEVELOPMENT) - left_out


def install12(
    tmp_path: Path, part: str, *options: str
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A prefix with a part of a wheel in the form of CUDA 12's."""
    source, prefix = tmp_path / "src", tmp_path / "prefix"
    source.mkdir()
    cuda12_wheel(source)
    script = SCRIPT.with_name("install_nvidia12.py")
    return prefix, install(source, prefix, part, *options, script=script)


INFO12 = "lib/python3.11/site-packages/nvidia_demo_cu12-12.8.5.dist-info"
INFO12_FILES = {f"{INFO12}/METADATA", f"{INFO12}/WHEEL", f"{INFO12}/licenses/LICENSE"}
FOLDER12 = "lib/python3.11/site-packages/nvidia/demo/lib"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("runtime", {"lib/libdemo.so.1", FOLDER12, *INFO12_FILES}),
        ("development", {"lib/libdemo.so", "include/demo.h"}),
        ("all", {"lib/libdemo.so.1", FOLDER12, "lib/libdemo.so", "include/demo.h", *INFO12_FILES}),
    ],
)
def test_cuda_12s_folders_are_links_and_no_python_packages(
    tmp_path: Path, part: str, expected: set[str]
) -> None:
    prefix, done = install12(tmp_path, part)
    assert done.returncode == 0, done.stderr
    assert files(prefix) == expected
    if part != "development":
        assert (prefix / FOLDER12).resolve() == prefix / "lib"


def test_cuda_12s_libraries_may_stay_in_their_folder(tmp_path: Path) -> None:
    prefix, done = install12(tmp_path, "runtime", "--libraries-in-place")
    assert done.returncode == 0, done.stderr
    assert files(prefix) == {f"{FOLDER12}/libdemo.so.1", *INFO12_FILES}


def test_a_part_of_cuda_12s_with_nothing_in_it_is_refused(tmp_path: Path) -> None:
    done = install12(tmp_path, "development", "--exclude", "*")[1]
    assert done.returncode == 0, done.stderr  # the link for linkers
    (tmp_path / "src" / "two.whl").write_bytes(b"")
    script = SCRIPT.with_name("install_nvidia12.py")
    refused = install(tmp_path / "src", tmp_path / "prefix", "all", script=script)
    assert "holds 2 wheels, expected one" in refused.stderr
