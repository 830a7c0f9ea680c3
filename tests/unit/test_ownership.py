"""Which folders are relied on: owners, modes and links on the way to them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce import ownership
from ddlce.errors import MachineError
from ddlce.files import make_folder, write_atomic
from ddlce.locks import locked
from ddlce.ownership import check_place
from ddlce.settings import load_settings

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become other users")

#: A user, somebody else, a third, and a group that the first two are in.
ALICE, BOB, EVE, ADMINS = 61001, 61002, 61003, 61000


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user can enter, which is root's."""
    with tempfile.TemporaryDirectory(prefix="ddlce-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    ownership._warn.cache_clear()
    return caplog


def folder(path: Path, owner: int, mode: int = 0o755, group: int | None = None) -> Path:
    path.mkdir()
    os.chown(path, owner, owner if group is None else group)
    path.chmod(mode)
    return path


class As:
    """The effective user for a while: what root may not rely on, others may, and the reverse."""

    def __init__(self, user: int, *groups: int) -> None:
        self.user, self.groups = user, groups

    def __enter__(self) -> None:
        self.before = os.getgroups()
        os.setgroups(self.groups)
        os.setegid(self.user)
        os.seteuid(self.user)

    def __exit__(self, *_: object) -> None:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(self.before)


def refusal(path: Path, *, site: bool = False) -> str:
    with pytest.raises(MachineError) as caught:
        check_place(path, "the root", site=site)
    assert caught.value.hint
    return caught.value.message


def test_ones_own_and_roots_folders_are_relied_on(
    place: Path, warnings: pytest.LogCaptureFixture
) -> None:
    mine = folder(place / "mine", ALICE)
    for path in (mine, mine / "not" / "yet", place, Path("/")):
        with As(ALICE):
            check_place(path, "the root")
    assert warnings.text == ""


def test_what_others_own_is_refused_unless_named(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = folder(place / "theirs", EVE)
    message = f"the root {theirs} belongs to user {EVE}"
    assert refusal(theirs) == message
    with As(ALICE):
        assert refusal(theirs) == message
        # Whoever only reads it has chosen whom to rely on.
        check_place(theirs, "the root", site=True)
        for name in (str(EVE), f"root, {EVE}", "*"):
            monkeypatch.setenv("DDLCE_TRUST", name)
            check_place(theirs, "the root")
    monkeypatch.setenv("DDLCE_TRUST", "no-such-user")
    assert refusal(theirs) == "DDLCE_TRUST: there is no user 'no-such-user'"
    monkeypatch.delenv("DDLCE_TRUST")
    monkeypatch.setenv("SUDO_UID", str(EVE))
    check_place(theirs, "the root")


def test_what_everybody_may_write_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = folder(place / "free", 0, 0o777)
    inside = folder(free / "inside", 0)
    message = "may be changed by everybody"
    assert refusal(free) == refusal(free, site=True) == f"the root {free} {message}"
    assert refusal(inside) == f"the root {inside}: {free} {message}"
    assert refusal(free / "new") == f"the root {free / 'new'}: {free} {message}"
    free.chmod(0o1777)  # like /tmp
    check_place(inside, "the root")
    check_place(free / "new", "the root")
    assert refusal(free) == f"the root {free} {message}"
    monkeypatch.setenv("DDLCE_TRUST", "*")
    check_place(free, "the root")


def test_links_are_as_good_as_their_owners(place: Path) -> None:
    free = folder(place / "free", 0, 0o1777)
    target = folder(place / "target", 0)
    link = free / "link"
    link.symlink_to("../target")
    check_place(link / "below", "the root")
    os.chown(link, EVE, EVE, follow_symlinks=False)
    message = f"the root {link / 'below'}: {link} is a link that belongs to user {EVE}"
    assert refusal(link / "below") == refusal(link / "below", site=True) == message
    loop = place / "loop"
    loop.symlink_to("loop")
    check_place(loop, "the root")  # ends; whoever uses it finds out
    folder(target / "theirs", EVE)
    (place / "way").symlink_to(target / "theirs")
    assert f"{target / 'theirs'} belongs to user {EVE}" in refusal(place / "way")


def test_above_a_folder_others_are_warned_of_and_refused_to_root(
    place: Path, warnings: pytest.LogCaptureFixture
) -> None:
    mine = folder(folder(place / "project", BOB) / "mine", ALICE)
    text = f"the root {mine}: {place / 'project'} belongs to user {BOB}"
    with As(ALICE):
        check_place(mine, "the root")
        check_place(mine, "the root")
    assert warnings.text.count(text) == 1
    assert f"{text}, who may change what is in it" in warnings.text
    os.chown(mine, 0, 0)
    assert refusal(mine) == text


def test_a_group_of_administrators(place: Path, warnings: pytest.LogCaptureFixture) -> None:
    shared = folder(place / "shared", 0, 0o2775, ADMINS)
    inside = folder(shared / "inside", BOB, 0o2775, ADMINS)
    check_place(inside, "the root")  # root has given the folder to them
    with As(ALICE, ADMINS):
        check_place(inside, "the root")
    os.chown(shared, BOB, ADMINS)
    with As(ALICE, ADMINS):
        check_place(inside, "the root")
    assert warnings.text == ""
    with As(EVE):
        assert refusal(inside) == f"the root {inside} belongs to user {BOB}"
    assert refusal(inside) == f"the root {inside}: {shared} belongs to user {BOB}"
    inside.chmod(0o2777)
    with As(ALICE, ADMINS):
        assert refusal(inside) == f"the root {inside} may be changed by everybody"


def test_a_group_that_may_write_without_the_sign_of_it(
    place: Path, warnings: pytest.LogCaptureFixture
) -> None:
    folder(place / "private", 0, 0o775, 0)  # root's own group
    check_place(place / "private", "the root")
    assert warnings.text == ""
    path = folder(place / "group", ALICE, 0o775, ADMINS)
    with As(ALICE):
        check_place(path, "the root")
    assert f"warning: the root {path} may be changed by the group {ADMINS}" in warnings.text


@pytest.mark.parametrize("variable", ["DDLCE_CACHE", "DDLCE_ROOT"])
def test_every_command_looks_at_its_folders(
    place: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, str(folder(place / "free", 0, 0o777) / "below"))
    with pytest.raises(MachineError, match="may be changed by everybody"):
        load_settings()


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o027, 0o077])
def test_modes_are_not_the_umasks(place: Path, umask: int) -> None:
    group = folder(place / "group", 0, 0o2775, ADMINS)
    before = os.umask(umask)
    try:
        for top in (place, group):
            make_folder(top / "a" / "b")
            write_atomic(top / "c" / "file", "text")
            with locked(top / "d" / "lock"):
                pass
    finally:
        os.umask(before)
    modes = {
        str(path.relative_to(place)): oct(path.stat().st_mode & 0o7777)
        for path in sorted(place.rglob("*"))
    }
    own, shared = "0o755", "0o2775"
    assert modes == {
        **{"a": own, "a/b": own, "c": own, "c/file": "0o644", "d": own, "d/lock": "0o600"},
        **{"group": shared, "group/a": shared, "group/a/b": shared, "group/c": shared},
        **{"group/c/file": "0o644", "group/d": shared, "group/d/lock": "0o660"},
    }


def test_a_planted_lock_is_not_followed(place: Path) -> None:
    (place / "lock").symlink_to(place / "victim")
    with pytest.raises(MachineError, match=f"cannot write {place / 'lock'}: it is a symbolic link"):
        with locked(place / "lock"):
            pass
    assert not (place / "victim").exists()
