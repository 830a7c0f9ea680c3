"""What `make aarch64` made: programs of linux-aarch64, run under emulation on an old glibc."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from conda_package_streaming.extract import extract

from ddlce.elf import read_elf
from ddlce.emulate import ensure_sysroot
from ddlce.plan import make_plan
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from ddlce.store import Store
from support.run import run

ARM = "linux-aarch64"

pytestmark = pytest.mark.skipif(
    not any(map(shutil.which, PLATFORMS[ARM].emulators)), reason="no qemu-user: make aarch64"
)


@pytest.fixture(scope="module")
def bzip2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package bzip2."""
    settings = load_settings()
    (output,) = make_plan(settings, ARM).steps["bzip2"].outputs
    store = Store(settings.store)
    if not store.has(output.subdir, output.filename):
        pytest.skip("not built: make aarch64")
    folder = tmp_path_factory.mktemp("bzip2")
    extract(str(settings.store / output.subdir / output.filename), str(folder))
    return folder


def test_a_program_of_the_release_runs(bzip2: Path) -> None:
    ensure_sysroot(load_settings(), ARM)
    emulate = [sys.executable, "-m", "ddlce", "emulate", "--platform", ARM, "--"]
    program = f"echo arm | '{bzip2}/bin/bzip2' | '{bzip2}/bin/bzip2' -d && uname -m"
    done = run([*emulate, "sh", "-c", program])
    assert done.stdout.splitlines()[0] == "arm", done.stderr


def test_its_files_are_for_pages_of_64_kib(bzip2: Path) -> None:
    elf = read_elf((bzip2 / "bin" / "bzip2").read_bytes())
    assert elf is not None
    assert (elf.machine, elf.page) == ("EM_AARCH64", 65536)
