"""`ddlce env clone`, `install` and `remove`: the user's own, writable environments."""

from __future__ import annotations

import json
import os
import random
import shutil
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from ddlce.env import clone as clone_module
from ddlce.env.freeze import can_be_written
from ddlce.env.layout import user_locks
from ddlce.env.relink import Unusual
from ddlce.env.verify import verify
from ddlce.trees import remove_tree
from support.minienv import (
    NOBODY,
    Site,
    can_be_nobody,
    can_mount,
    everything,
    hello_wheel,
    packages_alone,
    small_disk,
)
from support.run import run

SITE_PACKAGES = "lib/python3.11/site-packages"


def output(*command: str | Path) -> str:
    return run(command, check=True).stdout


@pytest.fixture(scope="module")
def cloned(installed: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A user with the clone `mine`; other tests look at it, so do not change it."""
    user = Site(tmp_path_factory.mktemp("cloned"), installed.channel, shared=installed)
    user.ok("env", "clone", "mine")
    return user


def test_a_clone_runs_and_knows_only_its_own_place(cloned: Site) -> None:
    prefix = cloned.clones / "mine"
    assert output(prefix / "bin" / "mini-where") == f"{prefix}/share\none\n"
    assert output(prefix / "bin" / "minimod") == f"{prefix}/{SITE_PACKAGES}/minimod/__init__.py\n"
    assert output(prefix / "bin" / "miniarch") == "0.4\n"
    assert (prefix / "etc" / "mini.conf").read_text() == f"prefix={prefix}\n"
    assert cloned.python(prefix, "import mini_prefix as m; print(m.PREFIX)") == str(prefix)
    assert verify(prefix).ok
    source = os.fsencode(cloned.current)
    known = {"conda-meta/ddl-ce.origin"}  # says what it is a clone of
    for path in everything(prefix):
        name = str(path.relative_to(prefix))
        if path.is_file() and path.suffix != ".pyc" and name not in known:
            assert source not in path.read_bytes(), path


def test_tracebacks_name_the_clones_files(cloned: Site) -> None:
    prefix = cloned.clones / "mine"
    code = "import json.decoder as d; print(d.JSONDecoder.decode.__code__.co_filename)"
    assert cloned.python(prefix, code) == f"{prefix}/lib/python3.11/json/decoder.py"


def test_files_and_bytecode_are_links_but_not_what_holds_the_prefix(cloned: Site) -> None:
    prefix, source = cloned.clones / "mine", cloned.current
    decoder = "lib/python3.11/json/__pycache__/decoder.cpython-311.pyc"
    for name in ("bin/python3.11", "share/mini/plain.txt", decoder):
        assert (prefix / name).samefile(source / name), name
    for name in ("bin/mini-where", "etc/mini.conf", "bin/minimod", "lib/python3.11/mini_prefix.py"):
        assert (prefix / name).stat().st_nlink == 1, name
    assert (source / "lib/python3.11/__pycache__/mini_prefix.cpython-311.pyc").is_file()
    record = json.loads((prefix / "conda-meta" / "python-3.11.7-h0_0.json").read_text())
    assert decoder in record["files"]
    assert not [name for name in record["files"] if "mini_prefix.cpython" in name]


def test_a_clone_is_writable_except_for_shared_files(cloned: Site) -> None:
    prefix = cloned.clones / "mine"
    for path in [prefix, *everything(prefix)]:
        status = path.lstat()
        if stat.S_ISDIR(status.st_mode):
            assert status.st_mode & 0o200, path
        elif stat.S_ISREG(status.st_mode):
            assert bool(status.st_mode & 0o200) or status.st_nlink > 1, path
            assert status.st_nlink == 1 or not can_be_written(status), path
    assert not (prefix / "conda-meta" / "frozen").exists()
    assert not list(prefix.glob("lib/python3*/EXTERNALLY-MANAGED"))


def inventory(prefix: Path) -> dict[str, object]:
    """Every file of a prefix: the inode of a link, the content of a file of its own."""
    found: dict[str, object] = {}
    for path in everything(prefix):
        name, status = str(path.relative_to(prefix)), path.lstat()
        if path.is_symlink():
            found[name] = path.readlink()
        elif path.is_dir():
            found[name] = stat.S_IMODE(status.st_mode)
        elif status.st_nlink > 1:
            found[name] = status.st_ino
        elif path.suffix == ".json":
            found[name] = json.loads(path.read_text())
        elif path.name != "history":  # has the time
            found[name] = (bool(status.st_mode & 0o100), path.read_bytes())
    return found


def test_linking_makes_what_rattler_makes(user: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def leave_it(*_args: object) -> None:
        raise Unusual

    prefix = user.clones / "mine"
    # A plain release needs no rattler.
    with monkeypatch.context() as patch:
        patch.setattr(clone_module, "_reinstall", leave_it)
        linked = clone_module.clone(user.settings, str(prefix), user.current)
    ours = inventory(prefix)
    remove_tree(prefix)
    monkeypatch.setattr(clone_module, "plan_links", leave_it)
    installed = clone_module.clone(user.settings, str(prefix), user.current)
    assert ours == inventory(prefix)
    assert linked == installed


@pytest.mark.parametrize("name", ["with a space", "long" * 30])
def test_places_that_do_not_fit_into_a_script(user: Site, name: str) -> None:
    prefix = user.clones / name
    user.ok("env", "clone", prefix)
    assert output(prefix / "bin" / "minimod") == f"{prefix}/{SITE_PACKAGES}/minimod/__init__.py\n"
    assert verify(prefix).ok
    # Scripts of the first cannot be linked from, either.
    user.ok("env", "clone", "second", "--from", prefix)
    assert output(user.clones / "second" / "bin" / "miniarch") == "0.4\n"
    assert verify(user.clones / "second").ok


def test_bytecode_that_the_owner_removed_is_not_missed(user: Site) -> None:
    user.ok("env", "clone", "mine")
    shutil.rmtree(user.clones / "mine" / SITE_PACKAGES / "minimod" / "__pycache__")
    user.ok("env", "clone", "second", "--from", "mine")
    assert verify(user.clones / "second").ok


@pytest.mark.parametrize("quick", [True, False])
def test_an_edit_in_a_clone_has_its_effect_there_and_nowhere_else(
    user: Site, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    """The release belongs to the same user, who could write through a hard link."""

    def leave_it(*_args: object) -> None:
        raise Unusual

    if not quick:
        monkeypatch.setattr(clone_module, "plan_links", leave_it)
    prefix, name = user.clones / "mine", f"{SITE_PACKAGES}/minimod/__init__.py"
    clone_module.clone(user.settings, str(prefix), user.current)
    where = "import minimod; print(minimod.__file__, getattr(minimod, 'EDITED', None))"
    assert user.python(prefix, where) == f"{prefix}/{name} None"
    assert verify(prefix).ok  # Python took the release's bytecode, and wrote none
    before = (user.current / name).read_bytes()
    with (prefix / name).open("a") as module:
        module.write("EDITED = 1\n")
    assert user.python(prefix, where) == f"{prefix}/{name} 1"
    assert (user.current / name).read_bytes() == before
    second = user.clones / "second"
    clone_module.clone(user.settings, str(second), prefix)
    assert user.python(second, where) == f"{second}/{name} None"
    assert verify(user.current).ok
    assert verify(second).ok


def test_pip_installs_into_a_clone(user: Site) -> None:
    user.ok("env", "clone", "mine")
    prefix = user.clones / "mine"
    command = [str(prefix / "bin/python"), "-m", "pip", "install", "--no-index", "--no-deps"]
    done = run(
        [*command, hello_wheel(user.folder)],
        env=os.environ | {"PYTHONPATH": str(packages_alone(user.folder / "pip", "pip"))},
    )
    assert done.returncode == 0, done.stderr
    assert user.python(prefix, "import hello; print(hello.GREETING)") == "hi"
    report = verify(prefix)
    assert report.ok
    assert f"{SITE_PACKAGES}/hello.py" in report.extra
    assert verify(user.current).ok


def test_packages_are_added_changed_and_refused(user: Site) -> None:
    user.ok("env", "clone", "mine")
    prefix = user.clones / "mine"
    assert user.ok("env", "install", "mine", "mini-more") == "+ mini-more 1.0 h0_0\n"
    assert (prefix / "share" / "more.txt").read_text() == "more\n"
    assert user.ok("env", "install", "mine", "mini-more").startswith("nothing to do")
    assert not can_be_written((prefix / "share" / "more.txt").stat())  # a link into the cache
    # Another version: its files and the bytecode of the old ones are replaced.
    changed = user.ok("env", "install", "mine", "miniarch 0.3")
    assert changed == "- miniarch 0.4 h0_0\n+ miniarch 0.3 h0_0\n"
    assert output(prefix / "bin" / "miniarch") == "0.3\n"
    assert verify(prefix).ok
    message = user.fails(2, "env", "install", "mine", "mini-two")
    assert "mini-two 1.0 would require\n" in message
    assert "libmini 1.2, which conflicts with the versions reported above.\n" in message
    message = user.fails(2, "env", "install", "mine", "mini-nope")
    assert "No candidates were found for mini-nope *.\n" in message
    # A clone of the clone has what was added.
    user.ok("env", "clone", "second", "--from", "mine")
    assert output(user.clones / "second" / "bin" / "miniarch") == "0.3\n"
    assert (user.clones / "second" / "share" / "more.txt").is_file()
    assert verify(user.current).ok


def test_a_release_is_not_changed(user: Site) -> None:
    assert user.fails(2, "env", "install", "mini", "mini-more") == (
        f"error: {user.current} is frozen: mini 2026.11 is a release and cannot be changed. "
        "Python packages of your own go on top of it: ddlce env overlay NAME. "
        "To change other packages, make a copy: ddlce env clone NAME\n"
        "hint:  make a copy of your own: ddlce env clone NAME\n"
    )
    assert verify(user.current).ok


def test_clone_works_without_channel_and_tree(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    shutil.rmtree(site.channel)
    shutil.rmtree(site.repo)
    site.extra = {"DDLCE_REPO": ""}
    site.ok("env", "clone", "mine")
    assert verify(site.clones / "mine").ok
    # Without the cache either, there is nothing to make a clone from.
    remove_tree(site.root / "pkgs")
    message = site.fails(4, "env", "clone", "other")
    assert "packages cannot be installed:\n" in message
    assert "python-3.11.7-h0_0.conda: missing\n" in message
    assert [p.name for p in site.clones.iterdir()] == ["mine"]


def test_the_active_environment_is_the_default_source(user: Site) -> None:
    user.ok("env", "clone", "mine")
    user.ok("env", "install", "mine", "mini-more")
    user.extra = {"CONDA_PREFIX": str(user.clones / "mine")}
    user.ok("env", "clone", "second")
    assert (user.clones / "second" / "share" / "more.txt").is_file()


def test_targets_and_sources_that_cannot_be(user: Site) -> None:
    user.ok("env", "clone", "mine")
    prefix = user.clones / "mine"
    assert user.fails(2, "env", "clone", "mine") == (
        f"error: {prefix} is there already\n"
        f"hint:  choose another name, or remove it: ddlce env remove {prefix}\n"
    )
    full = user.folder / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine\n")
    assert f"{full} is there already and is not empty\n" in user.fails(2, "env", "clone", full)
    assert "is no folder\n" in user.fails(2, "env", "clone", full / "thesis.txt")
    assert (full / "thesis.txt").read_text() == "mine\n"
    for name in ("base", "a b", "-x"):
        message = user.fails(2, "env", "clone", "--", name)
        assert f"{name!r} is not a name for an environment\n" in message
    assert "there is no environment nope" in user.fails(2, "env", "clone", "x", "--from", "nope")
    inside = user.current / "share" / "mine"
    assert f"{inside} is inside {user.current}\n" in user.fails(2, "env", "clone", inside)
    empty = user.folder / "empty"
    empty.mkdir()
    user.ok("env", "clone", empty)
    assert verify(empty).ok


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_killed_anywhere_the_next_run_completes(user: Site, seed: int) -> None:
    for delay in (random.Random(seed).uniform(0.3, 2.0), 0.8 + seed * 0.3):
        user.killed_after(delay, "env", "clone", "mine")
        prefix = user.clones / "mine"
        if prefix.exists():
            assert verify(prefix).ok
            remove_tree(prefix)
    user.ok("env", "clone", "mine")
    assert verify(user.clones / "mine").ok
    assert [p.name for p in user.clones.iterdir()] == ["mine"]
    assert verify(user.current).ok


def test_another_file_system_gets_copies(user: Site) -> None:
    if not can_mount(user.folder / "probe"):
        pytest.skip("needs root, to mount another file system")
    with small_disk(user.folder / "disk", 120) as disk:
        said = user.ok("env", "clone", disk / "mine")
        assert f"all files are copies, which takes time and space: {user.current} is on" in said
        assert verify(disk / "mine").ok
        plain = disk / "mine" / "share" / "mini" / "plain.txt"
        plain.write_text("changed\n")  # its own now
        assert verify(disk / "mine").modified == ["share/mini/plain.txt"]
    assert verify(user.current).ok


def test_a_full_disk_leaves_nothing(user: Site) -> None:
    if not can_mount(user.folder / "probe"):
        pytest.skip("needs root, to mount a small file system")
    with small_disk(user.folder / "disk", 10) as disk:
        message = user.fails(3, "env", "clone", disk / "mine")
        assert message.startswith("error: no space left while ")
        assert list(disk.iterdir()) == []


@pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become another user")
def test_another_user_clones_a_release_they_do_not_own(public: Path, mini_channel: Path) -> None:
    owner = Site(public / "owner", str(mini_channel))
    owner.ok("lock", "mini")
    owner.ok("env", "create", "mini")
    theirs = Site(public / "other", str(mini_channel / "gone"), shared=owner)
    os.chown(theirs.folder, NOBODY, NOBODY)
    said = theirs.ok("env", "clone", "mine", user=NOBODY)
    if Path("/proc/sys/fs/protected_hardlinks").read_text() == "1\n":
        assert "(0 files linked, " in said
        assert (
            "all files are copies, which takes time and space: the kernel lets users link to "
            "their own files only (fs.protected_hardlinks)\n"
        ) in said
    prefix = theirs.clones / "mine"
    assert verify(prefix).ok
    assert output(prefix / "bin" / "minimod").endswith("minimod/__init__.py\n")
    plain = prefix / "share" / "mini" / "plain.txt"
    assert plain.stat().st_uid == NOBODY
    assert plain.stat().st_mode & 0o200
    assert verify(owner.current).ok


def test_remove_and_list(user: Site) -> None:
    user.ok("env", "clone", "mine")
    rows = {row["prefix"]: row for row in json.loads(user.ok("env", "list", "--json"))}
    assert rows[str(user.clones / "mine")]["kind"] == "clone"
    assert rows[str(user.current)]["default"] is True
    assert user.ok("env", "remove", "mine") == f"removed {user.clones / 'mine'}\n"
    assert list(user.clones.iterdir()) == []
    assert verify(user.current).ok
    stranger = user.folder / "stranger"
    (stranger / "conda-meta").mkdir(parents=True)
    assert "there is no environment" in user.fails(2, "env", "remove", stranger)
    assert stranger.is_dir()


def test_whoever_has_another_cache_waits_too(user: Site) -> None:
    """Both caches are one user's: the lock is beside the clone, and gone with its holder."""
    user.ok("env", "clone", "mine")
    with user_locks(user.settings, user.clones / "mine"):
        other = replace(user, extra={"DDLCE_CACHE": str(user.folder / "other")})
        removing = other.start("env", "remove", "mine")
        assert removing.stderr is not None
        assert removing.stderr.readline().startswith("waiting: process ")
        assert [path.name for path in sorted(user.clones.iterdir())] == [".mine.lock", "mine"]
    assert removing.communicate(timeout=60)[0] == f"removed {user.clones / 'mine'}\n"
    assert everything(user.clones) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives folders to others")
def test_a_lock_is_not_put_into_a_folder_of_others(user: Site) -> None:
    """Root's lock would stop the folder's owner."""
    user.clones.mkdir()
    os.chown(user.clones, NOBODY, NOBODY)
    user.ok("env", "clone", "mine")
    with user_locks(user.settings, user.clones / "mine"):
        assert [path.name for path in user.clones.iterdir()] == ["mine"]
