"""Machines that are set up otherwise: mounts that run nothing, no locks, long and linked paths.

Each either works, or is told in one true sentence.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.minienv import NOBODY, Site, can_be_nobody, can_mount
from support.minitree import MiniTree, make_tree
from support.run import ok, run

DDLCE = Path(sys.executable).with_name("ddlce")
#: flock(2) as on Lustre without -o flock.
NO_LOCKS = """#include <errno.h>
int flock(int file, int how) { return file + how ? errno = ENOSYS, -1 : -1; }
"""


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A folder that is not in /tmp."""
    folder = Path(tempfile.mkdtemp(prefix="ddlce-test-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def mounts(tmp_path: Path) -> None:
    """Skip where no file system can be mounted."""
    if not can_mount(tmp_path / "probe"):
        pytest.skip("needs the right to mount")


def with_noexec(
    folder: str | Path, *words: str | Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command where `folder` is a file system from which no program is run."""
    mode = "1777" if folder == "/tmp" else "755"
    mount = f'mount -t tmpfs -o noexec,mode={mode} tmpfs "{folder}" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, "sh", *map(str, words)]
    return run(command, env=env, cwd="/", timeout=300)


def test_a_package_s_test_runs_where_tmp_runs_nothing(mounts: None, elsewhere: Path) -> None:
    tree = make_tree(elsewhere)
    script = "mkdir -p $PREFIX/bin; printf '#!/bin/sh\\necho hello\\n' > $PREFIX/bin/hello\n"
    script += "chmod +x $PREFIX/bin/hello; $PREFIX/bin/hello\n"
    # The interpreter finds the program, so that this alone would not show the mount.
    script += 'cp $PREFIX/bin/hello $TMPDIR/x; "$TMPDIR/x"'
    folder = tree.recipe("tool", script=script, test="hello")
    assert folder.is_dir()
    ok(with_noexec("/tmp", DDLCE, "build", "tool", env=tree.env()))
    assert len(tree.packages()) == 1


@pytest.mark.parametrize("what", ["cache", "root"])
def test_a_cache_or_root_that_runs_nothing(mounts: None, tree: MiniTree, what: str) -> None:
    folder = tree.folder / what
    folder.mkdir()
    env = tree.env()
    if what == "cache":
        done = with_noexec(folder, DDLCE, "build", "base", env=env)
        assert done.returncode == 3
        assert done.stderr.endswith(
            f"error: {folder} is on a file system that is mounted noexec: no program can be run "
            "from it\n"
            "hint:  choose a folder on another one, with DDLCE_CACHE\n"
        )
    done = with_noexec(folder, DDLCE, "doctor", "--json", env=env)
    (check,) = [
        c
        for c in json.loads(done.stdout)["checks"]
        if c["name"] == {"cache": "the cache", "root": "environments"}[what]
    ]
    assert check["state"] == "missing"
    assert check["found"] == (
        f"{folder} is on a file system that is mounted noexec: no program can be run from it"
    )


def test_an_environment_where_nothing_can_be_run(mounts: None, site: Site) -> None:
    site.ok("lock", "mini")
    site.root.mkdir()
    words = ("env", "create", "mini", "--channel", site.channel)
    done = with_noexec(site.root, DDLCE, *words, env=site.env())
    assert done.returncode == 3
    assert done.stderr == (
        f"error: {site.root} is on a file system that is mounted noexec: no program can be run "
        "from it\nhint:  choose a folder on another one, with --root or DDLCE_ROOT\n"
    )


@pytest.fixture(scope="session")
def no_locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variable that makes flock(2) answer that it is not implemented."""
    folder = tmp_path_factory.mktemp("nolocks")
    (folder / "flock.c").write_text(NO_LOCKS)
    library = folder / "flock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, folder / "flock.c"], check=True)
    return {"LD_PRELOAD": str(library)}


def test_a_file_system_without_locks(tree: MiniTree, no_locks: dict[str, str]) -> None:
    said = (
        " has no file locks (flock: Function not implemented); Lustre has them when it is mounted "
        "with -o flock\nhint:  choose a folder on another one, with DDLCE_CACHE"
    )
    done = tree.ddlce("build", "base", **no_locks)
    assert (done.returncode, said in done.stderr) == (3, True), done.stderr
    code = "from ddlce.cli.app import _end\nfrom ddlce.files import *\n"
    code += "from ddlce.locks import locked\n"
    code += "try:\n  locked(Path('here/.lock')).__enter__()\nexcept MachineError as e: _end(e)"
    done = run([sys.executable, "-c", code], env=tree.env(**no_locks), cwd=tree.folder)
    assert (done.returncode, said in done.stderr) == (3, True), done.stderr
    done = tree.ddlce("doctor", "--json", **no_locks)
    found = {c["name"]: c["found"] for c in json.loads(done.stdout)["checks"]}
    for name in ("the cache", "environments"):
        assert "has no file locks" in found[name]


def test_a_prefix_that_is_too_long_for_packages(site: Site) -> None:
    """What stands in packed files for the prefix has 255 characters."""
    site.ok("lock", "mini")
    root = site.folder / "/".join(["n" * 50] * 6)
    said = site.fails(2, "env", "create", "mini", "--root", root)
    assert f"error: {root}/envs/mini/2026.11-" in said
    assert " characters, and the files of packages have space for 255\n" in said
    assert said.endswith("hint:  choose a shorter path\n")
    assert not root.exists()
    site.ok("env", "create", "mini")
    said = site.fails(2, "env", "clone", str(root / "mine"))
    assert f"error: {root}/mine has " in said
    assert not root.exists()


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
@pytest.mark.parametrize("closed", ["channel", "subdir", "package"])
def test_a_channel_that_its_owner_keeps_closed(
    public: Path, mini_channel: Path, closed: str
) -> None:
    """Another user of it is told whose it is, not that he cannot write."""
    channel = public / "channel"
    shutil.copytree(mini_channel, channel)
    mine = public / "mine"
    site = Site(mine, str(channel))
    site.ok("lock", "mini")
    for path in [mine, *mine.rglob("*")]:
        os.chown(path, NOBODY, NOBODY)
    package = sorted(channel.glob("noarch/*.conda"))[0]
    path = {"channel": channel, "subdir": channel / "noarch", "package": package}[closed]
    path.chmod(0o600 if path == package else 0o700)
    why = f"{path} belongs to root, who keeps it closed"
    created = site.ddlce("env", "create", "mini", user=NOBODY)
    assert created.returncode == 4
    assert why in created.stderr
    assert "open it to all who use it (chmod -R a+rX)" in created.stderr
    assert not site.settings.root.exists() or not list(site.root.glob("envs/*/*"))
    site.lock.unlink()
    locked = site.ddlce("lock", "mini", user=NOBODY)
    if path == package:  # an index is enough for a lock
        assert locked.returncode == 0
    else:
        assert locked.returncode == 3
        hint = "ask for it to be opened (chmod -R a+rX), or name another one"
        assert locked.stderr.endswith(f"repodata.json: {why}\nhint:  {hint}\n")


def test_one_root_under_two_names(site: Site) -> None:
    site.ok("lock", "mini")
    (site.folder / "link").symlink_to(site.root)
    site.root.mkdir()
    link = site.folder / "link"
    site.ok("env", "create", "mini", "--root", link)
    assert "is there already" in site.ok("env", "create", "mini")
    listed = json.loads(site.ok("env", "list", "--json", "--root", link))
    assert listed == json.loads(site.ok("env", "list", "--json"))
    assert [row["prefix"] for row in listed] == [str(site.current)]
    assert listed[0]["default"]
    name = f"mini/{site.current.name}"
    for prefix in (name, link / "envs" / name, site.current):
        assert str(site.current) in site.ok("env", "verify", prefix, "--root", link)
    said = site.fails(2, "env", "remove", name, "--root", link)
    assert "default" in said
