"""Virtual environments of other tools on the built release: every cluster's guide has them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ddlce.smoke import clean_environment
from support.minienv import hello_wheel, packages_alone
from support.run import ok
from support.run import run as run_program

pytestmark = pytest.mark.built

#: It and what it needs.
VIRTUALENV = ("virtualenv", "distlib", "filelock", "platformdirs", "python-discovery")


def run(prefix: Path, *command: str | Path, **env: str) -> str:
    """What a command says, with the release's programs first."""
    done = ok(run_program(command, env={**clean_environment(prefix, os.environ), **env}))
    return done.stdout


@pytest.mark.parametrize("options", [[], ["--system-site-packages"]])
def test_a_venv_has_pip_and_sees_the_release_if_asked(
    prefix: Path, tmp_path: Path, options: list[str]
) -> None:
    """It has a pip of its own, which needs no network, and sees the release where asked."""
    mine = tmp_path / "mine"
    run(prefix, prefix / "bin/python", "-m", "venv", *options, mine)
    said = run(prefix, mine / "bin/pip", "install", "--no-index", hello_wheel(tmp_path))
    assert "Successfully installed hello" in said
    code = "import hello, importlib.util, sys; print(sys.prefix, importlib.util.find_spec('torch'))"
    said = run(prefix, mine / "bin/python", "-c", code)
    assert said.startswith(f"{mine} {'ModuleSpec' if options else 'None'}")
    if options:
        said = run(prefix, mine / "bin/pip", "install", "--no-index", "numpy", "torch")
        assert said.count("Requirement already satisfied: ") >= 2


def test_virtualenv_makes_one_too(prefix: Path, tmp_path: Path) -> None:
    """Its seeds are wheels inside of it."""
    packages = tmp_path / "packages"
    packages_alone(packages, *VIRTUALENV)
    mine = tmp_path / "mine"
    python = prefix / "bin/python"
    run(prefix, python, "-m", "virtualenv", "--no-download", mine, PYTHONPATH=str(packages))
    said = run(prefix, mine / "bin/pip", "install", "--no-index", hello_wheel(tmp_path))
    assert "Successfully installed hello" in said


def test_uv_installs_into_a_venv(prefix: Path, tmp_path: Path) -> None:
    uv = Path(sys.executable).with_name("uv")
    mine = tmp_path / "mine"
    run(prefix, uv, "venv", "--offline", "--python", prefix / "bin/python", mine)
    wheel = hello_wheel(tmp_path)
    run(prefix, uv, "pip", "install", "--offline", "--python", mine / "bin/python", wheel)
    code = "import hello, sys; print(sys.prefix)"
    assert run(prefix, mine / "bin/python", "-c", code) == f"{mine}\n"
