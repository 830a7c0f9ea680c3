"""`ddlce smoke`: which program it starts, and with which variables."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from ddlce.errors import InputError, MachineError
from ddlce.lock import lock_path
from ddlce.settings import Settings
from ddlce.smoke import clean_environment, find_prefix, smoke_command
from support import lockpair
from support.run import run

PPC = "linux-ppc64le"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(repo=None, cache=tmp_path / "cache", root=tmp_path / "root")


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A conda prefix of somebody else's, with an activation script and a suite that shows all."""
    prefix = tmp_path / "prefix"
    activate = prefix / "etc" / "conda" / "activate.d" / "a.sh"
    activate.parent.mkdir(parents=True)
    activate.write_text('export FROM_ACTIVATION="$HOME/x"\n')
    (prefix / "conda-meta").mkdir()
    program = prefix / "bin" / "ddlce-smoke"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport json, os, sys\n"
        "print(json.dumps([sys.argv[1:], dict(os.environ)]))\nsys.exit(7)\n"
    )
    program.chmod(0o755)
    return prefix


def test_nothing_of_the_caller_s_reaches_in(prefix: Path) -> None:
    caller = {
        "HOME": "/home/me",
        "PATH": "/evil/bin",
        "PYTHONPATH": "/evil",
        "LD_LIBRARY_PATH": "/evil",
        "DDL_OPTIONS": "-mode x",
        "CONDA_PREFIX": "/other",
    }
    environ = clean_environment(prefix, caller)
    assert not any("evil" in value for value in environ.values())
    assert "DDL_OPTIONS" not in environ
    assert environ["CONDA_PREFIX"] == str(prefix)
    assert environ["PATH"].split(":")[0] == str(prefix / "bin")
    assert environ["PYTHONNOUSERSITE"] == "1"


def test_what_a_job_needs_stays(prefix: Path) -> None:
    caller = {"HOME": "/home/me", "SLURM_JOB_ID": "7", "CUDA_VISIBLE_DEVICES": "1", "LC_ALL": "C"}
    environ = clean_environment(prefix, caller)
    assert caller.items() <= environ.items()


def test_the_activation_s_variables_are_set_for_this_user(prefix: Path) -> None:
    assert clean_environment(prefix, {"HOME": "/home/me"})["FROM_ACTIVATION"] == "/home/me/x"


def test_the_suite_takes_the_place_of_ddlce(prefix: Path, tmp_path: Path) -> None:
    arguments = ["smoke", str(prefix), "--quick", "--json", "--report", "out", "--ranks", "1,2"]
    done = run(
        [sys.executable, "-m", "ddlce", *arguments],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "1"},
    )
    assert done.returncode == 7, done.stderr
    argv, environ = json.loads(done.stdout)
    expected = ["--ranks", "1,2", "--report", "out", "--quick", "--json"]
    assert argv == expected
    assert "PYTHONHASHSEED" not in environ


def test_an_environment_without_the_suite(prefix: Path, settings: Settings) -> None:
    (prefix / "bin" / "ddlce-smoke").unlink()
    with pytest.raises(MachineError, match="has no ddlce-smoke") as raised:
        smoke_command(settings, str(prefix), [], {})
    assert "ddlce env install NAME ddl-ce-smoke" in (raised.value.hint or "")


@pytest.mark.parametrize("name", ["nothere", "./nothere"])
def test_no_such_environment(settings: Settings, name: str) -> None:
    with pytest.raises(InputError, match="there is no environment"):
        find_prefix(settings, name)


def test_another_platform_that_is_not_locked(tmp_path: Path, settings: Settings) -> None:
    settings = replace(settings, repo=tmp_path)
    with pytest.raises(InputError, match=r"there is no lock .*ddl-ce.*linux-ppc64le"):
        smoke_command(settings, "ddl-ce", [], {}, PPC)


def test_another_platform_s_release_that_is_not_installed(
    tmp_path: Path, settings: Settings
) -> None:
    settings = replace(settings, repo=tmp_path)
    path = lock_path(settings, "toys", PPC)
    path.parent.mkdir(parents=True)
    made = lockpair.lock(lockpair.package("a", subdir=PPC), env="toys", platform=PPC)
    path.write_text(made.to_yaml())
    with pytest.raises(InputError, match="is not there, which the lock of toys for") as raised:
        smoke_command(settings, "toys", [], {}, PPC)
    assert raised.value.hint == f"ddlce env create toys --platform {PPC}"


def test_a_folder_that_is_no_environment(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not an environment"):
        find_prefix(settings, str(tmp_path))


def test_the_suite_ends_with_ddlce(settings: Settings, prefix: Path) -> None:
    """`ddlce all` is killed: the suite gets SIGTERM, and ends its ranks."""
    program = prefix / "bin" / "ddlce-smoke"
    program.write_text("#!/bin/sh\necho started\nexec sleep 60\n")
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from ddlce.smoke import pass_once\nfrom ddlce.settings import Settings\n"
        f"root = Path({str(settings.root)!r})\n"
        f"pass_once(Settings(repo=None, cache=root, root=root), Path({str(prefix)!r}))"
    )
    ddlce = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert ddlce.stdout
    assert ddlce.stdout.readline() == "started\n"
    ddlce.kill()
    ddlce.wait()
    # The suite holds the other end until it is gone, too.
    assert ddlce.communicate(timeout=30)[0] == ""
