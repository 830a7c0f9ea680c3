"""The table of platforms: one row is all that the plan needs to know of a new one."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from ddlce.engine.variants import glibc_floor, python_version
from ddlce.errors import InputError
from ddlce.model.manifest import load_manifest
from ddlce.plan import make_plan
from ddlce.platforms import BUILD_PLATFORM, PLATFORMS, Platform, get_platform, this_platform
from ddlce.settings import load_settings

REPO = Path(__file__).parents[2]

RISCV = Platform(
    subdir="linux-riscv64",
    machine="riscv64",
    debian="riscv64",
    triple="riscv64-linux-gnu",
    elf="EM_RISCV",
    page_size=4096,
    loader="ld-linux-riscv64-lp64d.so.1",
    emulators=("qemu-riscv64-static", "qemu-riscv64"),
)


def test_a_new_row_is_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLATFORMS, RISCV.subdir, RISCV)
    plan = make_plan(load_settings(), RISCV.subdir)
    planned = {step.name for step in plan.steps.values() if step.subdir == RISCV.subdir}
    assert {"bzip2", "openssl", "python", "mpich-hydra"} <= planned
    # Each other package is absent for a reason that a person can act on.
    assert plan.absent["numpy"] == "there is no file of it for linux-riscv64"
    assert plan.absent["ddl"] == "needs numpy"
    native = make_plan(load_settings())
    noarch = {n for n, s in native.steps.items() if all(o.subdir == "noarch" for o in s.outputs)}
    assert native.steps.keys() - noarch <= planned | plan.absent.keys()


def test_an_unknown_platform_names_the_known_ones() -> None:
    with pytest.raises(InputError) as caught:
        get_platform("linux-s390x")
    assert caught.value.message == "linux-s390x: not a known platform"
    assert caught.value.hint == "one of: linux-64, linux-ppc64le, linux-aarch64"


def test_linux_aarch64_has_the_base_of_the_release() -> None:
    plan = make_plan(load_settings(), "linux-aarch64")
    made = {o.name for s in plan.steps.values() if s.subdir == plan.subdir for o in s.outputs}
    assert {"libgcc", "libstdcxx", "openssl", "python", "mpich-hydra"} <= made
    # Its own rooms stand in for those of the other platforms.
    rooms = {"libgcc", "libstdcxx", "openssl", "python"}
    assert not rooms & (plan.steps.keys() | plan.absent.keys())
    tools = {o.name for s in plan.steps.values() if s.subdir == BUILD_PLATFORM for o in s.outputs}
    assert {"gcc_impl_linux-aarch64", "gxx_impl_linux-aarch64", "gcc_linux-aarch64"} <= tools


def test_the_compilers_of_a_platform_do_not_know_the_others() -> None:
    """Another output would be another digest of all that is compiled by them."""
    steps = make_plan(load_settings()).steps
    assert {o.name for o in steps["toolchain"].outputs} == {"gcc_linux-64", "gxx_linux-64"}
    cross = {o.name for o in steps["toolchain_cross"].outputs}
    assert "gcc_linux-ppc64le" in cross
    assert "gcc_linux-aarch64" not in cross


def test_this_machine_has_a_row() -> None:
    row = PLATFORMS[this_platform()]
    assert row.machine == subprocess.check_output(["uname", "-m"], text=True).strip()


def test_no_environment_is_for_a_glibc_below_that_of_its_packages() -> None:
    floor = Version(glibc_floor(REPO / "recipes"))
    for path in (REPO / "envs").glob("*.yaml"):
        assert Version(load_manifest(path).platforms[BUILD_PLATFORM].glibc) >= floor, path


def test_each_platform_has_one_python(tmp_path: Path) -> None:
    floors = {subdir: glibc_floor(REPO / "recipes", subdir) for subdir in PLATFORMS}
    assert floors == {"linux-64": "2.28", "linux-ppc64le": "2.41", "linux-aarch64": "2.28"}
    found = {subdir: python_version(REPO / "recipes", subdir) for subdir in PLATFORMS}
    assert found == {"linux-64": "3.11", "linux-ppc64le": "3.13", "linux-aarch64": "3.11"}
    path = tmp_path / "conda_build_config.yaml"
    for text, count in (("toy: ['1']\n", 0), ("python: [3.11.*, 3.12.*]\n", 2)):
        path.write_text(text)
        python_version.cache_clear()
        with pytest.raises(InputError, match=f"{path}: python: .* found {count}"):
            python_version(tmp_path)
