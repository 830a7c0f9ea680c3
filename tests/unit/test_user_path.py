"""Paths as users write them: homes, links on the way, and what no environment can be at."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from ddlce.env.layout import clone_target, clones_folder
from ddlce.errors import InputError, MachineError
from ddlce.filesystem import check_prefix
from ddlce.lock import channel_address
from ddlce.userpath import absolute, canonical
from support.run import run

NOBODY_KNOWS = 54_321


def test_a_home_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert absolute("~/x", "--root") == Path("/home/me/x")
    assert absolute("~", "--root") == Path("/home/me")
    assert absolute("~root/x", "--root") == Path(os.path.expanduser("~root"), "x")  # noqa: PTH111
    with pytest.raises(InputError, match=r"^--root: ~nouser/x: there is no user 'nouser'$"):
        absolute("~nouser/x", "--root")


def test_an_empty_home_is_not_the_current_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "")
    with pytest.raises(MachineError, match=r"^HOME is '', which is no folder: user "):
        absolute("~/x", "--root")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user whom nobody knows")
def test_a_user_whom_the_system_does_not_know() -> None:
    code = "import os; from ddlce.userpath import absolute; "
    code += f"os.setuid({NOBODY_KNOWS}); absolute('~/x', '--root')"
    names = {name: value for name, value in os.environ.items() if name != "HOME"}
    done = run([sys.executable, "-c", code], env=names)
    assert f"which is no folder: user {NOBODY_KNOWS} has no home" in done.stderr


def test_one_path_for_one_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real/work").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path / "link/work")
    for name in ("./mine", "../work/mine", f"{tmp_path}/link/work/mine", "~/work/mine"):
        monkeypatch.setenv("HOME", f"{tmp_path}/link")
        assert clone_target(name) == tmp_path / "real/work/mine"
    assert clone_target("../") == tmp_path / "real"
    (tmp_path / "end").symlink_to("real")
    assert canonical(tmp_path / "end") == tmp_path / "end"
    for variable in ("CONDA_ENVS_DIRS", "CONDA_ENVS_PATH"):
        monkeypatch.delenv(variable, raising=False)
    assert clones_folder() == tmp_path / "real/.local/share/ddl-ce-envs"
    monkeypatch.setenv("CONDA_ENVS_PATH", "~nouser/x:/opt")
    with pytest.raises(
        InputError, match=r"^CONDA_ENVS_PATH: ~nouser/x: there is no user 'nouser'$"
    ):
        clones_folder()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a:b", "'/opt/a:b' has a colon, at which PATH is divided"),
        ("a\nb", r"'/opt/a\\nb' has a line break"),
        ("x" * 255, "has 260 characters, and the files of packages have space for 255"),
    ],
)
def test_what_no_environment_can_be_at(name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        check_prefix(Path("/opt", name))


def test_an_address_that_is_none() -> None:
    with pytest.raises(InputError, match=r"--channel: 'http://\[bad' is no address: Invalid IPv6"):
        channel_address("http://[bad")
