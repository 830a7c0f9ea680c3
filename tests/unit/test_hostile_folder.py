"""Nothing in the current folder, or in a tree found above it, is run unless its user says so.

Each test stands in a folder where another user has left modules with names that everybody
imports; each of them leaves a trace when it is run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ddlce.emulate.command import emulated, find_emulator
from ddlce.env.create import render_condarc
from ddlce.errors import DdlceError, InputError
from ddlce.ownership import others_may_change
from ddlce.programs import absolute_only, own_python
from ddlce.settings import Settings, find_repo, load_settings
from support.minitree import MiniTree
from support.run import ok
from support.run import run as run_program

DDLCE = Path(sys.executable).with_name("ddlce")
NOBODY = 65534
#: Of the standard library, of pip, and ours.
PLANTED = ("json", "typing", "re", "signal", "dataclasses", "pip", "yaml", "sitecustomize", "ddlce")

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another user")


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A folder with planted modules and programs."""
    folder = tmp_path / "trap"
    folder.mkdir()
    spring = f"open({str(tmp_path / 'sprung')!r}, 'a').write(__name__ + chr(10))\n"
    for name in PLANTED:
        (folder / f"{name}.py").write_text(spring)
    for name in ("gcc", "cmake", "git", "bzip2", "nvidia-smi", "unshare", "npm"):
        (folder / name).write_text(f"#!/bin/sh\necho {name} >> {tmp_path}/sprung\n")
        (folder / name).chmod(0o755)
    return folder


def sprung(trap: Path) -> str:
    """What was run of it."""
    trace = trap.parent / "sprung"
    return trace.read_text() if trace.exists() else ""


def run(trap: Path, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    return run_program(
        [*map(str, command)], cwd=trap, env={**os.environ, "COLUMNS": "200", **env}, timeout=300
    )


def test_the_trap_works(trap: Path) -> None:
    """Else the other tests would show nothing."""
    run(trap, sys.executable, "-m", "ddlce.builder.worker", "none")
    assert "ddlce" in sprung(trap)


def test_a_build_runs_nothing_from_the_current_folder(trap: Path, tree: MiniTree) -> None:
    ok(run(trap, DDLCE, "build", "app", **tree.env()))
    assert len(tree.packages()) == 3
    assert sprung(trap) == ""


@pytest.mark.parametrize("words", [("doctor",), ("lint",), ("plan",), ("index",), ("env", "list")])
def test_commands_run_nothing_from_the_current_folder(
    trap: Path, tree: MiniTree, words: tuple[str, ...]
) -> None:
    path = f":{os.environ['PATH']}:"  # an empty part means the current folder
    done = run(trap, DDLCE, *words, **tree.env(PATH=path))
    assert "Traceback" not in done.stderr
    assert sprung(trap) == ""


def test_our_own_python_is_as_isolated_as_we_are(trap: Path) -> None:
    assert own_python("-c", "1") == [sys.executable, "-P", "-c", "1"]
    code = "from ddlce.programs import own_python; print(own_python()[1])"
    assert run(trap, sys.executable, "-I", "-c", code).stdout == "-I\n"
    assert run(trap, *own_python("-m", "pip", "--version")).returncode == 0
    assert run(trap, *own_python("-c", "import json, typing")).returncode == 0
    assert sprung(trap) == ""


def test_an_emulated_program_s_helper(trap: Path) -> None:
    try:
        find_emulator("linux-ppc64le")
        command = emulated(["true"], "linux-ppc64le", trap)
    except DdlceError as error:
        pytest.skip(error.message)
    run(trap, *command)
    assert sprung(trap) == ""


def test_what_depends_on_the_current_folder_is_no_part_of_path() -> None:
    assert absolute_only(":/usr/bin::bin:./x:/bin:") == "/usr/bin:/bin"
    assert absolute_only("") == ""


def planted_tree(folder: Path) -> Path:
    """What looks like a DDL-CE tree, with a template that would run a program."""
    (folder / "recipes").mkdir(parents=True)
    (folder / "channel").mkdir()
    (folder / "envs").mkdir()
    (folder / "channel/channel.yaml").write_text("name: evil\n")
    attack = "{{ cycler.__init__.__globals__.os.popen('touch ' + pkgs).read() }}"
    (folder / "channel/condarc.j2").write_text(attack)
    return folder


def give(folder: Path, user: int) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, user)


@root_only
def test_a_foreign_tree_above_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = planted_tree(tmp_path / "repo")
    below = repo / "of" / "mine"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    monkeypatch.delenv("DDLCE_REPO", raising=False)
    assert load_settings().repo == repo
    give(repo, NOBODY)
    assert find_repo(Path.cwd()) == repo
    settings = load_settings()
    assert settings.repo is None
    with pytest.raises(InputError, match=rf"is not used, since {repo}/?.* belongs to nobody") as e:
        _ = settings.recipes
    assert e.value.hint
    assert "DDLCE_REPO" in e.value.hint
    monkeypatch.setenv("SUDO_UID", str(NOBODY))  # `sudo ddlce` in one's own tree
    assert load_settings().repo == repo
    monkeypatch.delenv("SUDO_UID")
    monkeypatch.setenv("DDLCE_REPO", str(repo))
    assert load_settings().repo == repo


@root_only
def test_the_command_says_so_and_works_without_a_tree(tmp_path: Path) -> None:
    repo = planted_tree(tmp_path / "repo")
    give(repo, NOBODY)
    env = {k: v for k, v in os.environ.items() if k != "DDLCE_REPO"}
    env |= {"DDLCE_ROOT": str(tmp_path / "root"), "DDLCE_CACHE": str(tmp_path / "cache")}

    def ddlce(*words: str) -> subprocess.CompletedProcess[str]:
        return run_program([DDLCE, *words], cwd=repo, env=env)

    done = ddlce("plan")
    assert done.returncode == 2
    assert done.stderr == (
        f"error: the DDL-CE tree here is not used, since {repo} belongs to nobody\n"
        "hint:  if you trust whoever that is, say so: set DDLCE_REPO to the tree's path\n"
    )
    assert ddlce("env", "list").returncode == 0


@pytest.mark.parametrize(
    "part", [".", "recipes", "channel", "channel/channel.yaml", "channel/condarc.j2", "envs"]
)
def test_a_tree_that_others_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    repo = planted_tree(tmp_path / "repo")
    monkeypatch.chdir(repo)
    monkeypatch.delenv("DDLCE_REPO", raising=False)
    assert load_settings().repo == repo
    (repo / part).chmod(0o777)
    assert (load_settings().repo, load_settings().refused) == (
        None,
        f"everybody may write {repo / part}",
    )


@root_only
def test_a_group_with_other_members_is_a_danger(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("")
    path.chmod(0o664)
    assert others_may_change(path) is None  # root's own group, which has no other member
    os.chown(path, 0, NOBODY)
    assert others_may_change(path) == f"the group nogroup may write {path}"
    path.chmod(0o644)
    assert others_may_change(path) is None
    os.chown(path, 4242, 0)
    assert others_may_change(path) == f"{path} belongs to user 4242"
    link = tmp_path / "link"
    link.symlink_to("/nowhere")
    assert others_may_change(link) is None
    os.chown(link, NOBODY, NOBODY, follow_symlinks=False)
    assert others_may_change(link) == f"{link} belongs to nobody"


@pytest.mark.parametrize(
    "template",
    [
        "{{ cycler.__init__.__globals__.os.popen('touch ' + pkgs).read() }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% for n in range(10**12) %}{% endfor %}",
        "{{ no_such_name }}",
        "{% if %}",
    ],
)
def test_a_template_cannot_run_code(tmp_path: Path, template: str) -> None:
    repo = planted_tree(tmp_path / "repo")
    (repo / "channel/condarc.j2").write_text(template)
    settings = Settings(repo, tmp_path, tmp_path)
    error: Callable[[], object] = lambda: render_condarc(settings, ["https://example.org"])  # noqa: E731
    with pytest.raises(InputError, match=r"condarc\.j2: not a usable template: "):
        error()
    assert not (tmp_path / "pkgs").exists()
