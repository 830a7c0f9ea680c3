"""The tests' own libraries from pip: two tests at once do not take them away from each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ddlce.files import sha256_file
from support import pip
from support.run import run
from support.wheelfiles import make_wheel

TESTS = Path(__file__).parents[1]

#: Says when it installs, and then that it has what it was given.
USES = """
import sys
from pathlib import Path
from support import pip
pip.REQUIREMENTS, install = Path(sys.argv[1]), pip.run_or_complain
def said(*words):
    print("installs")
    install(*words)
pip.run_or_complain = said
prefix = pip.pip_prefix("toy")
(module,) = prefix.glob("lib/python3*/site-packages/toy/__init__.py")
assert module.stat().st_size
print("has it")
"""


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    wheel = make_wheel(tmp_path, "toy")
    words = f"toy==1.0 --hash=sha256:{sha256_file(wheel)}\n"
    (tmp_path / "toy.txt").write_text(f"--no-index\n--find-links {tmp_path}\n{words}")
    path = os.pathsep.join((str(TESTS), str(TESTS.parent / "scripts")))
    return {**os.environ, "DDLCE_CACHE": str(tmp_path / "cache"), "PYTHONPATH": path}


def test_two_at_once_have_one_installation(tmp_path: Path, environ: dict[str, str]) -> None:
    command = [sys.executable, "-c", USES, str(tmp_path)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as other:
        ours = run(command, env=environ)
        theirs, _ = other.communicate()
    assert ours.returncode == 0, ours.stderr
    assert other.returncode == 0
    assert sorted((ours.stdout + theirs).splitlines()) == ["has it", "has it", "installs"]


def test_a_killed_installation_is_made_again(
    tmp_path: Path, environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DDLCE_CACHE", environ["DDLCE_CACHE"])
    monkeypatch.setattr(pip, "REQUIREMENTS", tmp_path)
    prefix = pip.pip_prefix("toy")
    (module,) = prefix.glob("lib/python3*/site-packages/toy/__init__.py")
    (prefix / "installed").unlink()
    module.write_bytes(b"")
    assert pip.pip_prefix("toy") == prefix
    assert module.stat().st_size
