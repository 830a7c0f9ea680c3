"""The folder itself: whose it is, and who may write to it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from private_caches.folder import NAME, NotPrivateError, private_folder

ASK = "from private_caches.folder import private_folder; print(private_folder('a/b'))"
NOBODY = 65534


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def fresh(**variables: str) -> Path:
    """The folder that another process got, which has ended since."""
    done = subprocess.run(
        [sys.executable, "-c", ASK], env=variables, capture_output=True, text=True, check=True
    )
    return Path(done.stdout.strip())


def test_it_is_of_mode_0700_whatever_the_umask(home: Path) -> None:
    before = os.umask(0)
    try:
        folder = Path(private_folder("a/b"))
    finally:
        os.umask(before)
    assert folder == home / ".cache" / NAME / "a" / "b"
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.parents[:3])} == {0o700}
    assert private_folder("a/b") == str(folder)


def test_the_user_s_choice_of_a_cache_folder_holds(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "scratch" / "cache"))
    assert private_folder("a") == f"{home}/scratch/cache/{NAME}/a"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # the standard says: ignore it
    assert private_folder("a") == f"{home}/.cache/{NAME}/a"


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_folder_that_others_may_write_is_refused(home: Path, mode: int) -> None:
    folder = Path(private_folder("a"))
    folder.chmod(mode)
    with pytest.raises(NotPrivateError) as raised:
        private_folder("a/b")
    assert str(raised.value) == (
        f"{folder} can be written by others (mode {mode:o}), so what it holds is not used: "
        "remove it, or let XDG_CACHE_HOME name another folder"
    )


def test_a_link_is_refused(home: Path) -> None:
    Path(private_folder("a")).joinpath("b").symlink_to("/")
    with pytest.raises(NotPrivateError, match=f"^{home}/.cache/{NAME}/a/b is no folder, so "):
        private_folder("a/b")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_another_user_s_folder_is_refused(home: Path) -> None:
    folder = Path(private_folder("a"))
    os.chown(folder, NOBODY, -1)
    with pytest.raises(NotPrivateError, match=rf"^{folder} belongs to another user \(\w+\), so "):
        private_folder("a")


@pytest.mark.parametrize("home", ["/proc/none", "/dev/null"])
def test_who_has_no_home_gets_a_folder_for_the_process(tmp_path: Path, home: str) -> None:
    folder = fresh(HOME=home, TMPDIR=str(tmp_path))
    assert folder.parent == tmp_path
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700  # nobody else can take its name
    assert list(folder.iterdir()) == []


def test_a_folder_that_the_program_has_removed_is_no_trouble(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"{ASK}; import shutil; shutil.rmtree(private_folder('a/b'))"],
        env={"HOME": "/proc/none", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_where_others_can_rename_is_not_used(tmp_path: Path) -> None:
    cache, temporary = tmp_path / "open" / "cache", tmp_path / "temporary"
    cache.mkdir(parents=True)
    temporary.mkdir()
    cache.parent.chmod(0o777)
    folder = fresh(XDG_CACHE_HOME=str(cache), TMPDIR=str(temporary))
    assert folder.parent == temporary
    assert list(cache.iterdir()) == []


def test_forked_children_share_a_process_s_folder(tmp_path: Path) -> None:
    script = (
        "import os\n"
        "from private_caches.folder import private_folder\n"
        "first = private_folder('a')\n"
        "if os.fork():\n"
        "    os.wait()\n"
        "    print(os.listdir(first))\n"
        "else:\n"
        "    open(os.path.join(private_folder('a'), 'file'), 'w')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"HOME": "/proc/none", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "['file']\n", done.stderr
    assert [list(folder.iterdir()) for folder in tmp_path.iterdir()] == [[]]
