"""The release for linux-ppc64le, installed from its lock and run under emulation: `make ppc64le`.

Times under qemu say nothing about POWER, so none is looked at.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ddlce.emulate import emulated, machine_of
from ddlce.env.layout import Layout
from ddlce.errors import InputError
from ddlce.modulefile.install import write_modulefiles
from ddlce.platforms import PLATFORMS
from ddlce.settings import load_settings
from ddlce.smoke import clean_environment, find_release
from support.modulesystems import read_snap, require, run_shell, snap
from support.run import ok
from support.run import run as run_program

POWER = "linux-ppc64le"
ORACLE = Path(__file__).parents[2] / "recipes" / "ddl" / "tests" / "package" / "oracle.py"

pytestmark = [
    pytest.mark.built,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(
        not any(map(shutil.which, PLATFORMS[POWER].emulators)),
        reason="no qemu-user on this machine",
    ),
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def prefix() -> Path:
    """The release of the lock for POWER."""
    try:
        return find_release(load_settings(), "ddl-ce", POWER)
    except InputError as error:
        pytest.skip(f"{error.message}: run `make ppc64le` first")


@pytest.fixture(scope="module")
def run(prefix: Path) -> Run:
    """Runs a program of the release, and says what it printed.

    The machine has no C library for it: the release brings its own.
    """
    machine = machine_of(load_settings(), POWER, prefix)
    assert list(machine.iterdir()) == []

    def run(program: str, *arguments: str) -> str:
        argv = emulated([str(prefix / "bin" / program), *arguments], POWER, machine)
        env = clean_environment(prefix, os.environ) | {"OMP_NUM_THREADS": "1"}
        done = ok(run_program(argv, env=env))
        return done.stdout

    return run


def test_every_main_package_is_imported(run: Run, tmp_path: Path) -> None:
    run("ddlce-smoke", "--parts", "versions", "--report", str(tmp_path))
    report = json.loads((tmp_path / "report.json").read_text())
    assert "ppc64le" in report["machine"]["system"]
    assert report["machine"]["cpu"].startswith("emulated on ")
    outcomes = {case["name"]: case["outcome"] for case in report["parts"][0]["cases"]}
    assert set(outcomes.values()) == {"passed"}
    assert {"pytorch", "ddl", "ddl-torch", "horovod", "lms-torch", "mpi4py"} <= outcomes.keys()
    assert "tensorflow" not in outcomes


def test_all_of_a_process_is_the_releases(run: Run, prefix: Path) -> None:
    """No file of PyTorch's process, and none of the programs that it starts, is the machine's."""
    code = (
        "import subprocess, sys, torch, ddl, numpy, scipy.linalg, sklearn, ssl, socket\n"
        "socket.getaddrinfo('localhost', 80)\n"
        "subprocess.run(['openssl', 'version'], check=True, stdout=subprocess.DEVNULL)\n"
        "print({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line})"
    )
    libraries = ast.literal_eval(run("python", "-c", code))
    assert f"{prefix}/lib/glibc/libc.so.6" in libraries
    assert [name for name in libraries if not name.startswith(f"{prefix}/")] == []


@pytest.mark.parametrize("ranks", [2, 4])
def test_collectives_are_exact(run: Run, ranks: int) -> None:
    run("ddlrun", "-H", f"localhost:{ranks}", "python", str(ORACLE))


def test_its_smoke_suite_has_passed(prefix: Path) -> None:
    """`make ppc64le` has run it: collectives on 1, 2 and 4 ranks, DDP and Horovod on 4, LMS."""
    report = json.loads((Layout(load_settings().root).reports(prefix) / "report.json").read_text())
    assert report["passed"]
    assert report["machine"]["cpu"].startswith("emulated on ")
    trained = {row["backend"]: row for row in report["throughput"] if row["accuracy"]}
    assert {"ddl", "horovod"} <= trained.keys()
    assert all(row["ranks"] == 4 and row["accuracy"] >= 0.95 for row in trained.values())
    lms = [c for part in report["parts"] for c in part["cases"] if c["name"].startswith("LMS: ")]
    assert [case["outcome"] for case in lms] == ["passed"] * 4


def test_ddp_learns_the_digits_as_on_x86_64(run: Run) -> None:
    """To the accuracy that two ranks reach there, 98.9%: three of 360 images more or less."""
    said = run("ddlrun", "-H", "localhost:2", "python", "-m", "ddl_ce_smoke.train", "--ranks", "2")
    rows = [line.split() for line in said.splitlines() if "identical" in line]
    assert [row[1] for row in rows] == ["2"]
    assert abs(float(rows[0][2].rstrip("%")) - 98.9) < 0.9


def test_mpi4py_and_ddl_share_one_mpi(run: Run) -> None:
    code = "import ddl; from mpi4py.MPI import COMM_WORLD; ddl.init(); assert COMM_WORLD.size == 2"
    run("ddlrun", "-H", "localhost:2", "python", "-c", code)


@pytest.mark.parametrize("system", ["lmod", "environment-modules"])
def test_its_module_is_loaded(prefix: Path, tmp_path: Path, system: str) -> None:
    found, shell = require(system, "bash")
    written = write_modulefiles(prefix, Layout(load_settings().root), tmp_path / "modules")
    machine = machine_of(load_settings(), POWER, prefix)
    there = replace(shell, argv=tuple(emulated(shell.argv, POWER, machine)))
    before, loaded, after = (tmp_path / name for name in ("before", "loaded", "after"))
    code = "import os, ddl; print(os.uname().machine, ddl.__file__)"
    steps = [
        *(snap(before), f"module load ddl-ce/{written.version}", snap(loaded)),
        *(f"python -c '{code}'", "which ddlrun", "ddlrun --help > /dev/null"),
        *("module unload ddl-ce", snap(after)),
    ]
    done = run_shell(found, there, written.trees[found.writer], steps, {})
    processor, module = done.stdout.splitlines()[0].split()
    assert processor == "ppc64le"
    assert module.startswith(str(prefix)), done.stderr
    assert f"{prefix}/bin/ddlrun" in done.stdout.splitlines()
    assert read_snap(loaded)["CONDA_PREFIX"] == str(prefix)
    assert read_snap(after) == read_snap(before), done.stderr
