"""What `make aarch64` made: programs of linux-aarch64, run under emulation on an old glibc."""

from __future__ import annotations

import functools
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddlce.elf import read_elf
from ddlce.emulate import ensure_sysroot
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from support.builtpackages import unpack_built
from support.run import ok, run

ARM = "linux-aarch64"

#: What the python of the release is made of.
PYTHON = (
    *("python", "bzip2", "ca-certificates", "libexpat", "libffi", "libgcc", "libsqlite", "libuuid"),
    *("libzlib", "ncurses", "openssl", "readline", "xz"),
)

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, PLATFORMS[ARM].emulators)), reason="no qemu-user: make aarch64"
)

Unpack = Callable[..., Path]


@pytest.fixture
def unpack(tmp_path: Path) -> Unpack:
    """Unpacks packages of the platform into one folder, which it returns."""
    return functools.partial(unpack_built, ARM, tmp_path / "prefix")


def emulate(*command: str) -> str:
    ensure_sysroot(load_settings(), ARM)
    own = [sys.executable, "-m", "ddlce", "emulate", "--platform", ARM, "--"]
    done = ok(run([*own, *command]))
    return done.stdout


def test_a_program_of_the_release_runs(unpack: Unpack) -> None:
    bzip2 = unpack("bzip2") / "bin" / "bzip2"
    assert emulate("sh", "-c", f"echo arm | '{bzip2}' | '{bzip2}' -d && uname -m").startswith("arm")


def test_its_files_are_for_pages_of_64_kib(unpack: Unpack) -> None:
    elf = read_elf((unpack("bzip2") / "bin" / "bzip2").read_bytes())
    assert elf is not None
    assert (elf.machine, elf.page) == ("EM_AARCH64", 65536)


def test_programs_see_an_arm_s_processor(unpack: Unpack) -> None:
    bzip2 = unpack("bzip2") / "bin" / "bzip2"
    said = emulate("sh", "-c", f"'{bzip2}' -kc /proc/cpuinfo | '{bzip2}' -d")
    assert "CPU implementer\t: 0x41\n" in said


def test_its_python_sees_the_processes_of_the_machine(unpack: Unpack) -> None:
    python = unpack(*PYTHON) / "bin" / "python3.11"
    assert (
        emulate(str(python), "-I", "-c", "import os; print('self' in os.listdir('/proc'))")
        == "True\n"
    )


def test_its_python_has_all_its_libraries(unpack: Unpack) -> None:
    program = "import bz2, ctypes, lzma, platform, sqlite3, ssl, zlib; print(platform.machine())"
    python = unpack(*PYTHON) / "bin" / "python3.11"
    assert emulate(str(python), "-I", "-c", program) == "aarch64\n"


def test_its_pytorch_needs_nothing_of_nvidia_s(unpack: Unpack) -> None:
    files = [path for path in unpack("pytorch").rglob("*.so*") if path.is_file()]
    needed = {name for f in files if (elf := read_elf(f.read_bytes())) for name in elf.needed}
    assert "libtorch_nocuda.so" in needed
    for_gpus = ("libcu", "libnccl", "libnv", "libtorch_cuda")
    assert [n for n in needed if n.startswith(for_gpus) and "nvpl" not in n] == []
