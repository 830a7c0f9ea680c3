"""How a clone gets files, on real file systems with reflinks and without."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ddlce.env.sharing import Sharing, compiled_time
from ddlce.errors import SourceError
from support.run import run


@contextmanager
def disk(folder: Path, kind: str) -> Iterator[Path]:
    """A new file system of this kind in a file, mounted; skips where that cannot be."""
    if not shutil.which(f"mkfs.{kind}"):
        package = {"xfs": "xfsprogs", "btrfs": "btrfs-progs"}[kind]
        pytest.skip(f"mkfs.{kind} is not installed (apt-get install {package})")
    image, place = folder / "image", folder / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(400 << 20)
    run([f"mkfs.{kind}", "-q", image], check=True)
    mount = run(["mount", "-o", "loop", image, place])
    if mount.returncode:
        pytest.skip(f"a {kind} cannot be mounted here: {mount.stderr.strip()}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def put(path: Path, mode: int = 0o444) -> Path:
    path.write_bytes(b"release\n" * 1000)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_reflinks_where_the_file_system_has_them(tmp_path: Path, kind: str) -> None:
    with disk(tmp_path, kind) as place:
        big = place / "big"
        big.write_bytes(os.urandom(20 << 20))
        big.chmod(0o444)
        script = put(place / "script", 0o555)
        os.sync()
        free = os.statvfs(place).f_bavail
        sharing = Sharing()
        for number in range(5):
            sharing.give(str(big), str(place / f"big{number}"))
        sharing.give(str(script), str(place / "mine"))
        os.sync()
        taken = (free - os.statvfs(place).f_bavail) * os.statvfs(place).f_frsize
        assert taken < 10 << 20  # of 100 MiB
        assert (sharing.reflinked, sharing.linked, sharing.copied) == (6, 0, 0)
        mine = place / "mine"
        assert mine.stat().st_mode & 0o777 == 0o755
        assert mine.read_bytes() == script.read_bytes()
        mine.write_text("edited\n")
        assert script.read_bytes() == b"release\n" * 1000


def test_hard_links_but_not_of_what_its_owner_edits(tmp_path: Path) -> None:
    data, module = put(tmp_path / "data.so"), put(tmp_path / "module.py")
    sharing = Sharing(reflinks=False)
    time = compiled_time(tmp_path, "module.py")
    sharing.give(str(data), str(tmp_path / "a"))
    sharing.give(str(module), str(tmp_path / "b"), time)
    assert (tmp_path / "a").samefile(data)
    mine = tmp_path / "b"
    assert not mine.samefile(module)
    assert mine.stat().st_mode & 0o777 == 0o644
    assert mine.stat().st_mtime_ns == time == module.stat().st_mtime_ns
    assert (sharing.reflinked, sharing.linked, sharing.copied) == (0, 1, 1)


def test_a_link_that_is_there_already_becomes_a_file_of_its_own(tmp_path: Path) -> None:
    module = put(tmp_path / "module.py")
    (tmp_path / "linked.py").hardlink_to(module)
    Sharing().own(str(tmp_path / "linked.py"), 10**18)
    assert not (tmp_path / "linked.py").samefile(module)
    assert (tmp_path / "linked.py").stat().st_mtime_ns == 10**18
    assert module.stat().st_mtime_ns != 10**18
    assert sorted(path.name for path in tmp_path.iterdir()) == ["linked.py", "module.py"]


def test_a_source_that_is_gone_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"{tmp_path}/gone is not there"):
        Sharing().give(f"{tmp_path}/gone", f"{tmp_path}/new")
    assert list(tmp_path.iterdir()) == []
