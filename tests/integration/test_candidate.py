"""A candidate release: installed, tested, offered and taken back by the commands of the how-to."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from support.documents import FENCE, REPO
from support.minitree import MiniTree, make_tree
from support.minitree import suite_release as release
from support.run import run

HOWTO = REPO / "docs/howto/release.md"


@pytest.fixture
def tree(tmp_path: Path) -> MiniTree:
    """A tree of an environment that has a suite, and its first release as the default one."""
    tree = make_tree(tmp_path)
    release(tree, "2026.11")
    done = tree.ddlce("all", "toys", HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    return tree


def ok(tree: MiniTree, *words: str) -> str:
    done = tree.ddlce(*words, HOME=str(tree.folder))
    assert done.returncode == 0, done.stderr
    return done.stdout


def current(tree: MiniTree) -> Path:
    found = Layout(tree.settings.root).current("toys")
    assert found
    return found


def for_users(tree: MiniTree) -> tuple[list[str], list[str], str]:
    """What users find: modulefiles, conda's names, and the default version of the module."""
    root = tree.settings.root
    lua = root / "modulefiles/lua/toys"
    default = re.search(r'"toys/([^"]+)"', (lua / ".modulerc.lua").read_text())
    assert default
    return (
        sorted(path.stem for path in lua.glob("[!.]*.lua")),
        sorted(path.name for path in (root / "conda/envs").iterdir()),
        default[1],
    )


def listed(tree: MiniTree) -> dict[str, str]:
    """Release → what `env list` says of it."""
    rows = json.loads(ok(tree, "env", "list", "--json"))
    kinds = {True: "default", False: "beside"}
    return {
        row["release"]: "candidate" if row["candidate"] else kinds[row["default"]] for row in rows
    }


def howto(tree: MiniTree) -> list[str]:
    """The console of the page, for the toy environment and its root."""
    block = next(block for kind, block in FENCE.findall(HOWTO.read_text()) if kind == "console")
    lines = [re.sub(r"\s+#.*", "", line.removeprefix("$ ")) for line in block.splitlines()]
    for old, new in (("/opt/ddl-ce", str(tree.settings.root)), ("ddl-ce", "toys")):
        lines = [line.replace(old, new) for line in lines]
    return lines


def test_the_commands_of_the_howto(tree: MiniTree) -> None:
    build, use, load, offer, back, gc = howto(tree)
    old = current(tree)
    release(tree, "2027.03")
    said = ok(tree, *shlex.split(build)[1:])
    new = next(p for p in Layout(tree.settings.root).releases() if p != old)
    assert f"ddlce env default toys/{new.name}" in said

    # Installed and tested; who does not ask for it sees nothing of it.
    assert listed(tree) == {"2026.11": "default", "2027.03": "candidate"}
    assert (Layout(tree.settings.root).reports(new) / "report.html").exists()
    assert for_users(tree) == (["2026.11"], ["toys", "toys-2026.11"], "2026.11")
    assert current(tree) == old
    folder = Path(shlex.split(use)[-1])
    assert (folder / f"{shlex.split(load)[-1]}.lua").is_file()
    assert f"module use {folder}" in said
    assert load in said

    names = {"2027.03-0123abcd": new.name, "2026.11-89abcdef": old.name}
    for line in (offer, back):
        for written, real in names.items():
            line = line.replace(written, real)
        said = ok(tree, *shlex.split(line)[1:])
        prefix, other = (new, old) if line.split()[3].endswith(new.name) else (old, new)
        assert f"to go back: ddlce env default toys/{other.name}\n" in said
        assert current(tree) == prefix
        both = ["2026.11", "2027.03"]
        conda = ["toys", "toys-2026.11", "toys-2027.03"]
        assert for_users(tree) == (both, conda, prefix.name.split("-")[0])
        assert listed(tree)["2027.03"] == ("default" if prefix == new else "beside")
        assert not list(folder.glob("toys/*"))
    assert "removed 0 releases" in ok(tree, *shlex.split(gc)[1:])


@pytest.mark.skipif(
    run(["unshare", "-n", "true"]).returncode != 0, reason="may not make a network namespace"
)
def test_without_a_network(tmp_path: Path) -> None:
    """`ddlce all` asks none, once the sources are there."""
    tree = make_tree(tmp_path)
    release(tree, "2026.11")
    command = ["unshare", "-n", sys.executable, "-m", "ddlce", "all", "toys"]
    done = run(command, env=tree.env(HOME=str(tmp_path)), cwd=tree.repo)
    assert done.returncode == 0, done.stderr
    assert listed(tree) == {"2026.11": "default"}


def test_a_switch_that_was_killed_offers_by_whole(tree: MiniTree) -> None:
    old = current(tree)
    release(tree, "2027.03")
    ok(tree, "all", "toys")
    new = current(tree)
    # Killed after the link: the mark stayed.
    Layout(tree.settings.root).candidate_mark(new).touch()
    assert listed(tree)["2027.03"] == "default"
    ok(tree, "env", "default", f"toys/{old.name}")
    assert listed(tree) == {"2026.11": "default", "2027.03": "beside"}


def test_a_release_whose_suite_fails_is_no_default(tree: MiniTree) -> None:
    before = for_users(tree), current(tree)
    release(tree, "2027.03", passes=False)
    done = tree.ddlce("all", "toys", HOME=str(tree.folder))
    assert done.returncode == 1
    assert "the smoke suite of" in done.stderr
    assert (for_users(tree), current(tree)) == before
    assert listed(tree) == {"2026.11": "default", "2027.03": "candidate"}
    # Mended, it is another release; the candidate goes.
    bad = next(p for p in Layout(tree.settings.root).releases() if p != current(tree))
    release(tree, "2027.03")
    ok(tree, "all", "toys")
    assert for_users(tree)[2] == "2027.03"
    assert "removed 0 releases" in ok(tree, "env", "gc", "--keep", "2")
    ok(tree, "env", "remove", f"toys/{bad.name}")
    assert sorted(listed(tree)) == ["2026.11", "2027.03"]
    assert not list(bad.parent.glob(".*candidate"))


def test_what_cannot_be_the_default_release(tree: MiniTree) -> None:
    prefix = current(tree)
    ok(tree, "env", "clone", str(tree.folder / "mine"), "--from", str(prefix))
    done = tree.ddlce("env", "default", str(tree.folder / "mine"))
    assert done.returncode == 2
    assert f"{tree.folder}/mine is not a release under a root" in done.stderr
    done = tree.ddlce("env", "default", "toys/2027.03-00000000")
    assert "there is no environment toys/2027.03-00000000" in done.stderr
    assert current(tree) == prefix


def test_a_platform_that_the_manifest_has_not(tree: MiniTree) -> None:
    prefix = current(tree)
    done = tree.ddlce("all", "toys", "--platform", "linux-aarch64")
    assert done.returncode == 2
    assert done.stderr == (
        "error: envs/toys.yaml is not for linux-aarch64, but for linux-64\n"
        "hint:  add the platform there, with its glibc\n"
    )
    assert current(tree) == prefix
