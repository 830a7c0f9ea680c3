"""`ddlce doctor`, on machines made of folders with few programs in them."""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from pathlib import Path

import pytest

from ddlce.cli.app import main
from ddlce.doctor import fix, machine
from ddlce.doctor.machine import check_disk, check_glibc, check_modules, check_mpi
from ddlce.doctor.packages import (
    Requirement,
    check_package,
    install_command,
    installer,
    read_list,
)
from ddlce.doctor.report import Check
from ddlce.errors import InputError, MachineError
from ddlce.settings import Settings, load_settings
from support.run import run

NAMES = {"apt": "tool", "dnf": "tool-rpm", "zypper": "-"}


def requirement(check: str, least: str = "", need: str = "required") -> Requirement:
    return Requirement(need, check, least, NAMES, "the test")


def program(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An otherwise empty PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path / "bin"


@pytest.mark.parametrize(
    ("printed", "version"),
    [
        ("echo 'gcc (Debian 12.2.0-14+deb12u1) 12.2.0'", "12.2.0"),
        ("echo 'This is perl 5, version 36 (v5.36.0) built for x86_64'", "5.36.0"),
        ("echo 'bzip2, Version 1.0.8, 13-Jul-2019.' >&2", "1.0.8"),
        ("echo none", "present"),
        ("exit 1", "present"),
        # As bzip2 does, which goes on to compress its standard input.
        ("echo 'bzip2, Version 1.0.8' >&2; cat; printf 'BZh9\\027rE8P\\220'", "1.0.8"),
    ],
)
def test_a_version_is_read_from_what_a_program_prints(
    path: Path, printed: str, version: str
) -> None:
    program(path, "tool", printed)
    assert check_package(requirement("tool")) == Check(
        "tool", "ok", version, "the test", "required", tuple(sorted(NAMES.items()))
    )


@pytest.mark.parametrize(
    ("printed", "state", "found"),
    [
        ("9.4", "missing", "9.4 is older than 12"),
        ("12.1", "ok", "12.1"),
        ("100.0", "ok", "100.0"),
    ],
)
def test_too_old_is_missing(path: Path, printed: str, state: str, found: str) -> None:
    program(path, "tool", f"echo {printed}")
    check = check_package(requirement("tool", "12"))
    assert (check.state, check.found) == (state, found)


@pytest.mark.parametrize(
    ("need", "state"), [("required", "missing"), ("test", "optional"), ("optional", "optional")]
)
def test_what_is_absent_matters_only_if_it_is_needed(path: Path, need: str, state: str) -> None:
    check = check_package(requirement("tool", need=need))
    assert (check.state, check.found) == (state, "not found")


def test_paths_and_modules(tmp_path: Path) -> None:
    assert check_package(requirement("python:venv")).state == "ok"
    assert check_package(requirement("python:no_such_module")).state == "missing"
    either = f"path:{tmp_path}/lmod|{tmp_path}/[mM]odules"
    assert check_package(requirement(either)).state == "missing"
    (tmp_path / "Modules").mkdir()
    check = check_package(requirement(either))
    assert (check.name, check.state, check.found) == ("tool", "ok", str(tmp_path / "Modules"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ID=debian\n", "apt"),
        ('ID=ubuntu\nID_LIKE="debian"\n', "apt"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "dnf"),
        ('ID="sles"\nID_LIKE="suse"\n', "zypper"),
        ("ID=arch\n", None),
    ],
)
def test_the_installer_follows_os_release(tmp_path: Path, text: str, expected: str | None) -> None:
    release = tmp_path / "os-release"
    release.write_text(text)
    assert installer(release) == expected
    assert installer(tmp_path / "none") is None


def test_one_command_for_all_that_is_needed() -> None:
    def check(state: str, need: str, package: str) -> Check:
        names = (("apt", package), ("dnf", f"{package}-rpm"), ("zypper", "-"))
        return Check("x", state, "", "", need, names)  # type: ignore[arg-type]

    checks = [
        check("missing", "required", "m4"),
        check("optional", "test", "zsh"),
        check("missing", "required", "g++"),
        check("missing", "required", "m4"),
        check("optional", "optional", "gfortran"),
        check("optional", "ppc64le", "gcc-powerpc64le-linux-gnu"),
        check("ok", "required", "make"),
        Check("memory", "missing", "1 GB", "", "required"),
    ]
    apt = ["apt-get", "install", "-y", "--no-install-recommends", "g++", "m4", "zsh"]
    assert install_command(checks, "apt") == apt
    dnf = ["dnf", "install", "-y", "g++-rpm", "m4-rpm", "zsh-rpm"]
    assert install_command(checks, "dnf") == dnf
    assert install_command(checks, "zypper") is None
    assert install_command(checks[5:], "apt") is None


def test_the_list_is_well_formed() -> None:
    wanted = read_list()
    assert len({w.check for w in wanted}) == len(wanted)
    assert {w.need for w in wanted} == {"required", "test", "optional", "ppc64le", "aarch64"}
    # All other tools that builds call are packages.
    required = [w.check for w in wanted if w.need == "required"]
    assert required == ["git", "python3", "python:ensurepip"]


def test_too_little_disk_is_told(tmp_path: Path) -> None:
    assert check_disk("d", tmp_path / "not" / "yet", 0, "why").state == "ok"
    full = check_disk("d", tmp_path / "not", 10**9, "why")
    assert full.state == "missing"
    assert full.found.endswith(f"GB free at {tmp_path}, 1000000000 GB needed")


def test_glibc_against_the_floor_of_the_tree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "recipes").mkdir()
    variants = tmp_path / "recipes/conda_build_config.yaml"
    settings = Settings(tmp_path, tmp_path, tmp_path)
    assert check_glibc(settings).state == "ok"
    variants.write_text('c_stdlib_version: ["2.28"]\n')
    assert check_glibc(settings).state == "ok"
    variants.write_text('c_stdlib_version: ["9.99"]\n')
    check = check_glibc(settings)
    assert check.state == "missing"
    assert check.found.endswith(" is older than 9.99")
    variants.write_text("c_stdlib_version: [2.28x]\n")
    with pytest.raises(InputError, match=r"c_stdlib_version: '2.28x' is no version"):
        check_glibc(settings)
    variants.write_text('c_stdlib_version: ["9.99"]\n')
    own = "c_stdlib:\n  - sysroot  # [not ppc64le]\n  - glibc  # [ppc64le]\n"
    variants.write_text(own + variants.read_text())
    assert check_glibc(settings).state == "missing"
    monkeypatch.setattr(platform, "machine", lambda: "ppc64le")  # its packages bring their own
    assert check_glibc(settings).state == "ok"


def test_the_site_s_mpi(path: Path) -> None:
    assert check_mpi().state == "optional"
    program(path, "mpiexec", "echo 'mpiexec (OpenRTE) 4.1.4'")
    assert (check_mpi().state, check_mpi().found) == ("ok", "mpiexec (OpenRTE) 4.1.4")


def test_the_module_system_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LMOD_VERSION", "8.6.19")
    assert check_modules().found == "Lmod 8.6.19"


def test_gpus_that_are_too_old_are_told(path: Path) -> None:
    settings = load_settings()
    assert machine.check_gpus(settings).state == "optional"
    program(path, "nvidia-smi", "echo 'NVIDIA H100, 580.1, 9.0'; echo 'NVIDIA H100, 580.1, 9.0'")
    assert machine.check_gpus(settings).found == "2: NVIDIA H100, 580.1, 9.0"
    program(path, "nvidia-smi", "echo 'NVIDIA H100, 580.1, 9.0'; echo 'Tesla K80, 580.1, 3.7'")
    check = machine.check_gpus(settings)
    assert check.state == "optional"
    assert "Tesla K80 has compute capability 3.7, 7.0 needed" in check.found
    program(path, "nvidia-smi", "echo 'NVIDIA H100, 580.1, [N/A]'")  # an old nvidia-smi
    assert machine.check_gpus(settings).state == "ok"


@pytest.mark.parametrize(
    ("driver", "state", "found"),
    [
        ("", "optional", "none"),
        ("12.4", "optional", "for CUDA 12.4, 12.8 needed: a newer driver"),
        ("12.8", "ok", "for CUDA 12.8"),
        ("13.1", "ok", "for CUDA 13.1"),
    ],
)
def test_the_driver(monkeypatch: pytest.MonkeyPatch, driver: str, state: str, found: str) -> None:
    monkeypatch.setenv("CONDA_OVERRIDE_CUDA", driver)
    check = machine.check_driver(load_settings())
    assert (check.state, check.found) == (state, found)


def test_fix_without_permission_changes_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    program(path, "sudo", "exit 1")
    program(path, "apt-get", f"touch {tmp_path}/ran")
    assert fix.run_fix("apt", ["apt-get", "install", "x"]) is False
    assert not (tmp_path / "ran").exists()


def test_fix_refreshes_then_installs(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(path, "apt-get", f'echo "$@ $DEBIAN_FRONTEND" >> {tmp_path}/log')
    assert fix.run_fix("apt", ["apt-get", "install", "-y", "m4"]) is True
    assert (tmp_path / "log").read_text().splitlines() == [
        "update noninteractive",
        "install -y m4 noninteractive",
    ]


def test_fix_says_when_the_installer_fails(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    program(path, "dnf", "exit 7")
    with pytest.raises(MachineError, match=r"'dnf install m4' failed \(exit 7\)"):
        fix.run_fix("dnf", ["dnf", "install", "m4"])


def test_the_command_exits_3_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process, since the disk and the memory of the test's machine are no matter here."""
    monkeypatch.setattr(os, "umask", lambda mask: mask)  # the process's, which other tests share
    for least in ("CACHE_GB", "ROOT_GB", "MEMORY_GB"):
        monkeypatch.setattr(machine, least, 0)
    monkeypatch.setenv("DDLCE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DDLCE_ROOT", str(tmp_path / "root"))
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "bin").mkdir()
    for wanted in read_list():
        real = shutil.which(wanted.check)
        if real and wanted.check != "git":
            (tmp_path / "bin" / wanted.check).symlink_to(real)
        elif wanted.need == "required" and wanted.check != "git":
            program(tmp_path / "bin", wanted.check, "echo 99.0")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    def ddlce(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["ddlce", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        return (int(end.value.code or 0), *capsys.readouterr())

    status, out, err = ddlce("doctor")
    assert status == 3
    assert err == (
        "error: this machine lacks what DDL-CE needs: git\n"
        "hint:  run 'ddlce doctor --fix', or ask who keeps this machine\n"
    )
    assert "missing   git" in out
    report = json.loads(ddlce("doctor", "--json")[1])
    (git,) = [check for check in report["checks"] if check["name"] == "git"]
    assert (git["state"], git["packages"]["apt"]) == ("missing", "git")
    if report["installer"]:
        assert "git" in report["install"]
    program(tmp_path / "bin", "git", "echo git version 2.39.5")
    status, _, err = ddlce("doctor")
    assert (status, err) == (0, "this machine has everything that DDL-CE needs\n")
    monkeypatch.setattr(machine, "CACHE_GB", 10**9)
    status, _, err = ddlce("doctor")
    assert (status, err.splitlines()[0]) == (
        3,
        "error: this machine lacks what DDL-CE needs: disk for the cache",
    )


def test_a_tool_that_reads_waits_for_nobody(path: Path, tmp_path: Path) -> None:
    """Run in a terminal, it would take what the user types."""
    program(path, "tool", "read line && echo 1.0")
    reader, writer = os.pipe()  # an input that never ends
    with os.fdopen(reader), os.fdopen(writer):
        code = "from ddlce.programs import ask; print(ask(['tool']).returncode)"
        done = run([sys.executable, "-c", code], stdin=reader, timeout=30)
    assert done.stdout == "1\n", done.stderr
