"""Every command with a folder of its own below a plain file: a message, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.minienv import REPO, Site, served
from support.minitree import MiniTree
from support.run import ok, run

SOURCE = {
    "client": "url",
    "package": "demo",
    "file": "demo.tar",
    "size": 1,
    "sha256": "0" * 64,
    "url": "http://127.0.0.1:1/demo.tar",
}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A file that somebody took for a folder."""
    path = tmp_path / "plain"
    path.write_text("not a folder\n")
    return path


MANIFEST = """
name: ddl-ce
release: "2026.11"
summary: A toy.
platforms: {linux-64: {glibc: "2.28"}}
specs: [app]
"""


def check(done: subprocess.CompletedProcess[str], plain: Path, code: int = 3) -> None:
    """A designed message that names the file in the way, and what to do."""
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr.splitlines()[-2].startswith("error: "), done.stderr
    assert str(plain) in done.stderr
    assert done.stderr.splitlines()[-1].startswith("hint: ")


@pytest.mark.parametrize("below", ["", "x"], ids=["file", "below"])
@pytest.mark.parametrize(
    "command",
    [
        ("fetch",),
        ("sources", "add", "url:http://127.0.0.1:1/a.tar", "--sha256", "0" * 64),
        ("plan",),
        ("build",),
        ("debug", "base"),
        ("index",),
        ("all",),
    ],
    ids=" ".join,
)
def test_the_cache(tree: MiniTree, plain: Path, command: tuple[str, ...], below: str) -> None:
    tree.lock_sources([SOURCE])
    manifest = tree.repo / "envs" / "ddl-ce.yaml"
    manifest.parent.mkdir()
    manifest.write_text(MANIFEST)
    check(tree.ddlce(*command, DDLCE_CACHE=str(plain / below)), plain)
    assert plain.read_text() == "not a folder\n"


def test_what_needs_no_cache_goes_on(tree: MiniTree, user: Site, plain: Path) -> None:
    """The lock of sources.lock is beside it, and that of a clone beside the clone."""
    tree.lock_sources([SOURCE])
    ok(tree.ddlce("sources", "sync", DDLCE_CACHE=str(plain)))
    user.extra["DDLCE_CACHE"] = str(plain / "x")
    user.ok("env", "clone", "mine")
    assert plain.read_text() == "not a folder\n"


def test_the_cache_of_a_remote_channel(site: Site, plain: Path) -> None:
    """Locking needs no cache of its own; with an unusable one it may go on or say why."""
    site.extra["DDLCE_CACHE"] = str(plain / "x")
    with served(Path(site.channel)) as url:
        site.channel = url
        done = site.ddlce("lock", "mini")
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert str(plain) in done.stderr


@pytest.mark.parametrize("below", ["", "x"], ids=["file", "below"])
def test_the_root_of_a_release(site: Site, plain: Path, below: str) -> None:
    site.ok("lock", "mini")
    check(site.ddlce("env", "create", "mini", "--root", plain / below), plain)


@pytest.mark.parametrize(
    "command",
    [
        ("module", "mini"),
        ("smoke", "mini"),
        ("env", "verify", "mini"),
        ("env", "clone", "mine"),
        ("env", "install", "mine", "zlib"),
        ("env", "remove", "mine"),
    ],
    ids=" ".join,
)
def test_a_root_with_nothing_in_it(site: Site, plain: Path, command: tuple[str, ...]) -> None:
    check(site.ddlce(*command, "--root", plain / "x"), plain, code=2)


def test_the_folder_of_clones(user: Site, plain: Path) -> None:
    user.extra["CONDA_ENVS_PATH"] = str(plain / "x")
    check(user.ddlce("env", "clone", "mine"), plain)
    check(user.ddlce("env", "clone", plain / "x"), plain)


@pytest.mark.parametrize("code", [("serve", 2), ("index", 3)], ids=lambda code: code[0])
def test_the_channel(tree: MiniTree, plain: Path, code: tuple[str, int]) -> None:
    command, status = code
    if command == "index":
        for name in ("lib", "app"):
            for path in (tree.repo / "recipes" / name).iterdir():
                path.unlink()
            (tree.repo / "recipes" / name).rmdir()
        assert tree.ddlce("build").returncode == 0
    check(tree.ddlce(command, DDLCE_CHANNEL=str(plain / "x")), plain, status)


def test_an_explicit_lock(site: Site, plain: Path) -> None:
    check(site.ddlce("lock", "mini", "--explicit", plain / "x"), plain)


def test_options_that_name_a_folder(tree: MiniTree, plain: Path) -> None:
    tree.lock_sources([])
    check(tree.ddlce("fetch", "--out", str(plain / "x")), plain)
    check(tree.ddlce("fetch", "--from", str(plain / "x")), plain, code=2)
    check(tree.ddlce("serve", "--channel", str(plain / "x")), plain, code=2)


def test_a_folder_of_modulefiles_below_a_file(installed: Site, plain: Path) -> None:
    check(installed.ddlce("module", "mini", "--out", plain / "x"), plain)


def test_the_tree(tree: MiniTree, plain: Path) -> None:
    check(tree.ddlce("fetch", DDLCE_REPO=str(plain)), plain)


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """The shell stands in a folder that somebody has removed."""
    command = [sys.executable, "-P", "-m", "ddlce", "plan"]
    script = f"import os; os.rmdir(os.getcwd()); os.execv({command[0]!r}, {command})"
    folder = tmp_path / "gone"
    folder.mkdir()
    done = run(
        [sys.executable, "-c", script],
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k != "DDLCE_REPO"}
        | {"PYTHONPATH": str(REPO / "scripts")},
    )
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    assert "current folder" in done.stderr
