"""A root that several administrators share, and other users who are in their way."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddlce import waiting
from ddlce.engine.index import publish_index
from ddlce.env.layout import Layout
from ddlce.env.verify import verify
from ddlce.errors import MachineError
from ddlce.packagecache import LOCK
from support.minienv import Site, can_be_nobody, everything, run_as, site_of_channel
from support.run import ok, run

pytestmark = pytest.mark.skipif(not can_be_nobody(), reason="needs root, to become other users")

#: Two administrators, a user, and the administrators' group.
ALICE, BOB, EVE, ADMINS = 61001, 61002, 61003, 61000


class Admins:
    """Two administrators with a tree each and one root."""

    def __init__(self, folder: Path, channel: Path) -> None:
        self.root = folder / "root"
        self.root.mkdir()
        os.chown(self.root, ALICE, ADMINS)
        self.root.chmod(0o2775)
        self.alice = self._site(folder / "alice", channel, ALICE)
        self.bob = self._site(folder / "bob", channel, BOB)

    def _site(self, folder: Path, channel: Path, user: int) -> Site:
        folder.mkdir()
        site = site_of_channel(folder, channel)
        site.groups = (ADMINS,)
        site.extra = {"DDLCE_ROOT": str(self.root)}
        for path in [folder, *everything(folder)]:
            os.chown(path, user, user, follow_symlinks=False)
        site.ok("lock", "mini", user=user)
        return site

    def next_release(self, site: Site, user: int, release: str) -> Path:
        """A newer release by this administrator; returns its prefix."""
        text = site.manifest.read_text()
        site.manifest.write_text(text.replace("2026.11", release))
        site.ok("lock", "mini", user=user)
        made = json.loads(site.ok("env", "create", "mini", "--json", user=user))
        return Path(made["prefix"])

    @property
    def releases(self) -> list[Path]:
        return Layout(self.root).releases()


@pytest.fixture
def admins(public: Path, mini_channel: Path) -> Admins:
    return Admins(public, mini_channel)


def state(folder: Path) -> dict[Path, tuple[int, int]]:
    """Inode and mode of all that is there but the lock, which is made when it is first needed."""
    found = {path: path.lstat() for path in everything(folder)}
    return {p: (s.st_ino, s.st_mode) for p, s in found.items() if p.suffix != ".lock"}


@contextmanager
def running(prefix: Path, user: int) -> Iterator[int]:
    """A job of `user` that runs from a release."""
    command = ["setpriv", f"--reuid={user}", "--clear-groups", str(prefix / "bin/python")]
    job = subprocess.Popen([*command, "-c", "print(flush=True); input()"], stdin=-1, stdout=-1)
    assert job.stdout
    assert job.stdin
    job.stdout.readline()
    yield job.pid
    job.stdin.write(b"\n")
    job.stdin.close()
    assert job.wait() == 0  # it found all that it needed to its end


def test_a_second_admin_adds_a_release_beside_the_first(admins: Admins) -> None:
    admins.alice.ok("env", "create", "mini", user=ALICE)
    first = admins.releases[0]
    second = admins.next_release(admins.bob, BOB, "2026.12")
    for prefix in (first, second):
        assert verify(prefix).ok
    assert (admins.root / "envs" / "mini" / "current").resolve() == second
    assert second.stat().st_uid == BOB
    assert second.stat().st_gid == ADMINS
    admins.bob.ok("module", "mini", user=BOB)
    third = admins.next_release(admins.alice, ALICE, "2027.01")
    admins.alice.ok("module", "mini", user=ALICE)
    assert verify(third).ok
    for path in (admins.root / "pkgs", third.parent, admins.root / "modulefiles" / "lua" / "mini"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o2775, path


def test_another_admins_release_is_not_removed_by_halves(admins: Admins) -> None:
    admins.alice.ok("env", "create", "mini", user=ALICE)
    old = admins.releases[0]
    new = admins.next_release(admins.bob, BOB, "2026.12")
    before = state(admins.root)
    with running(old, EVE):
        message = admins.bob.fails(3, "env", "remove", f"mini/{old.name}", user=BOB)
        assert f"error: cannot remove {old}: it belongs to user {ALICE}\n" in message
        assert "hint:  nothing was changed; its owner or root can remove it\n" in message
        done = ok(admins.bob.ddlce("env", "gc", user=BOB))
        assert f"kept {old}: it belongs to user {ALICE}\n" in done.stderr
        assert "removed 0 releases, 0 cached packages" in done.stdout
    assert state(admins.root) == before
    # The one who made it can.
    assert f"removed {old}\n" in admins.alice.ok("env", "gc", user=ALICE)
    assert admins.releases == [new]
    assert verify(new).ok


def test_a_release_that_a_job_runs_from_stays(admins: Admins) -> None:
    admins.alice.ok("env", "create", "mini", user=ALICE)
    old = admins.releases[0]
    admins.next_release(admins.alice, ALICE, "2026.12")
    with running(old, EVE) as job:
        message = admins.alice.fails(2, "env", "remove", f"mini/{old.name}", user=ALICE)
        assert f"{old} is in use: process {job} (" in message
        assert f") of user {EVE} runs from it\n" in message
        kept = json.loads(admins.alice.ok("env", "gc", "--json", user=ALICE))["kept"]
        assert [entry["path"] for entry in kept] == [str(old)]
        assert verify(old).ok
    admins.alice.ok("env", "remove", f"mini/{old.name}", user=ALICE)
    assert old not in admins.releases


def test_a_folder_that_the_system_does_not_let_go_is_put_back(site: Site, tmp_path: Path) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("env", "clone", "mine")
    prefix = site.clones / "mine"
    inner = prefix / "share" / "mini"
    inner.chmod(0o555)
    if run(["chattr", "+i", inner]).returncode:
        pytest.skip("this file system has no immutable folders")
    before = state(prefix)
    try:
        message = site.fails(3, "env", "remove", "mine")
        assert f"cannot write {prefix}: Operation not permitted\n" in message
        assert state(prefix) == before
    finally:
        subprocess.run(["chattr", "-i", inner], check=True)


def test_what_is_mounted_inside_is_not_emptied(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    site.ok("env", "clone", "mine")
    data, inside = site.folder / "data", site.clones / "mine" / "data"
    data.mkdir()
    inside.mkdir()
    mount = ["mount", "-t", "tmpfs", "tmpfs", str(inside)]
    if run(mount).returncode:
        pytest.skip("needs root, to mount a file system")
    try:
        (inside / "thesis").write_text("mine\n")
        message = site.fails(3, "env", "remove", "mine")
        assert f"another file system is mounted at {inside}\n" in message
        assert (inside / "thesis").read_text() == "mine\n"
    finally:
        subprocess.run(["umount", inside], check=True)


def test_the_default_release_of_another_root_is_not_removed(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    prefix = site.current
    site.extra = {"DDLCE_ROOT": str(site.folder / "elsewhere")}
    assert "is the default release of mini" in site.fails(2, "env", "remove", prefix)
    assert verify(prefix).ok


def test_packages_of_a_release_that_cannot_be_read_are_kept(admins: Admins) -> None:
    admins.alice.ok("env", "create", "mini", user=ALICE)
    old = admins.releases[0]
    admins.next_release(admins.bob, BOB, "2026.12")
    old.chmod(0o500)
    message = admins.bob.fails(3, "env", "gc", user=BOB)
    assert f"error: cannot read {old}" in message
    assert {path.stat().st_uid for path in (admins.root / "pkgs").glob("*/")} == {ALICE}


def test_a_reader_cannot_hold_the_lock(site: Site, public: Path) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    lock = Layout(site.root).lock
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    lock.chmod(0o644)  # as it was made in the past
    site.ok("env", "create", "mini")
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600


def test_notes_of_the_cache_that_a_reader_holds_are_not_waited_for(site: Site) -> None:
    site.ok("lock", "mini")
    site.ok("env", "create", "mini")
    text = site.manifest.read_text()
    site.manifest.write_text(text.replace("2026.11", "2026.12"))
    site.ok("lock", "mini")
    notes = [path.open() for path in (site.root / "pkgs").glob("*.lock")]
    assert notes
    for note in notes:
        fcntl.flock(note, fcntl.LOCK_EX)
    process = site.start("env", "create", "mini")
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0


def test_who_holds_a_lock_is_named_and_not_waited_for_for_ever(tmp_path: Path) -> None:
    lock, said = tmp_path / "x.lock", list[str]()
    holder = subprocess.Popen(
        ["flock", lock, "sh", "-c", "echo; read line"], stdin=-1, stdout=-1, text=True
    )
    assert holder.stdout
    assert holder.stdin
    holder.stdout.readline()
    with pytest.raises(MachineError) as caught:
        with waiting.waiting_lock(lock, said.append, timeout_s=0.3):
            pass
    assert said == [f"process {holder.pid} (flock) of root"]
    assert caught.value.message == f"cannot lock {lock}: {said[0]} has held it for 0 seconds"
    holder.communicate("\n")
    with waiting.waiting_lock(lock, said.append):
        assert len(said) == 1


def test_leftovers_of_others_at_work_are_not_removed(public: Path, mini_channel: Path) -> None:
    owner = Site(public / "owner", str(mini_channel))
    owner.ok("lock", "mini")
    owner.ok("env", "create", "mini")
    shared = public / "clones"
    shared.mkdir()
    shared.chmod(0o777)
    at_work = shared / ".mine.partial-1"
    at_work.mkdir()
    (at_work / "file").write_text("half\n")
    os.chown(at_work, EVE, EVE)
    owner.ok("env", "clone", shared / "mine")
    assert (at_work / "file").read_text() == "half\n"
    shutil.rmtree(at_work)


@pytest.mark.parametrize(
    "umask", [0o000, 0o077, *(pytest.param(n, marks=pytest.mark.slow) for n in (0o002, 0o027))]
)
def test_everybody_can_use_and_nobody_change_what_is_installed(
    public: Path, mini_channel: Path, umask: int
) -> None:
    channel = public / "channel"
    site = Site(public / "site", str(channel))
    before = os.umask(umask)
    try:
        packages = [(p.parent.name, p) for p in sorted(mini_channel.glob("*/*.conda"))]
        publish_index(channel, packages)
        site.ok("lock", "mini")
        site.ok("env", "create", "mini")
        site.ok("module", "mini")
    finally:
        os.umask(before)
    private = {Layout(site.root).lock, Layout(site.root).pkgs / LOCK}
    for path in {*everything(site.root), *everything(channel), site.root, channel} - private:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            continue
        wanted = 0o555 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o444
        assert mode & 0o577 & wanted == wanted, (path, oct(mode))
        assert not mode & 0o022, (path, oct(mode))
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}
    done = run_as(EVE, site.current / "bin" / "mini-where")
    assert done.stdout.startswith(f"{site.current}/share\n"), done.stderr
