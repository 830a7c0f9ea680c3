"""A bundle that installs, on bad input: one sentence says why, and nothing is half-installed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ddlce.env.layout import Layout
from ddlce.env.verify import verify
from ddlce.model.envlock import EnvLock
from ddlce.trees import remove_tree
from support.bundles import run_bundle, working_bundle
from support.minienv import everything
from support.run import ok, run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One channel: packed again, a package may be of another second, and so of other bytes."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def older(made: Path) -> tuple[EnvLock, Path]:
    return working_bundle(made)


@pytest.fixture(scope="module")
def newer(made: Path) -> tuple[EnvLock, Path]:
    return working_bundle(made, "2026.12")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    for root in tmp_path.glob("*/"):
        remove_tree(root)


def prefix_of(root: Path, lock: EnvLock) -> Path:
    return Layout(root).prefix(lock.env, lock.release, lock.digest)


def install(
    file: Path, root: Path, *options: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    return run_bundle(file, "--root", root, "--no-smoke", *options, folder=folder)


def installed(root: Path, *locks: EnvLock) -> None:
    """These releases are there and whole, the first is the default, and nothing is left over."""
    layout = Layout(root)
    assert {*layout.releases()} == {prefix_of(root, lock) for lock in locks}
    assert layout.current("mini") == prefix_of(root, locks[0])
    for lock in locks:
        assert verify(prefix_of(root, lock)).ok
        assert (root / "modulefiles" / "lua" / "mini" / f"{lock.release}.lua").is_file()
    assert not list(root.glob(".unpack-*"))
    assert not list(root.glob("envs/mini/.*"))


def test_an_older_bundle_over_a_newer_release(
    older: tuple[EnvLock, Path], newer: tuple[EnvLock, Path], folder: Path
) -> None:
    root = folder / "root"
    done = ok(install(newer[1], root, folder=folder))
    before = everything(root)
    done = install(older[1], root, folder=folder)
    assert (done.returncode, done.stderr.splitlines()) == (
        2,
        [
            f"error: {root} has mini 2026.12, which is newer than 2026.11 in {older[1].name}",
            "hint:  say --older to install it beside that one, which stays the default",
        ],
    )
    assert everything(root) == before
    assert install(older[1], root, "--older", folder=folder).returncode == 0
    installed(root, newer[0], older[0])


@pytest.mark.parametrize("name", ["a space ünïcödé 漢字", "-'quote' $HOME*"])
def test_paths_with_odd_characters(older: tuple[EnvLock, Path], folder: Path, name: str) -> None:
    """Of the root, and of the file."""
    root = folder / name / "opt"
    file = folder / f"{name}.run"
    shutil.copyfile(older[1], file)
    ok(install(file, root, folder=folder))
    installed(root, older[0])


@pytest.mark.parametrize(("name", "word"), [("a:b", "colon"), ("a,b", "comma")])
def test_a_root_that_lists_of_paths_would_divide(
    older: tuple[EnvLock, Path], folder: Path, name: str, word: str
) -> None:
    done = install(older[1], folder / name, folder=folder)
    assert done.returncode == 2, done
    lines = done.stderr.splitlines()
    assert [line[:7] for line in lines] == ["error: ", "hint:  "], done.stderr
    assert word in lines[0]
    assert not (folder / name).exists()


def test_two_at_once(
    older: tuple[EnvLock, Path], newer: tuple[EnvLock, Path], folder: Path
) -> None:
    """Of one bundle, and of two: each is whole."""
    root = folder / "root"
    files = [older[1], older[1], newer[1]]
    running = [
        subprocess.Popen(
            ["sh", str(file), "--root", str(root), "--no-smoke", "--older"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for file in files
    ]
    said = [process.communicate()[1] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0], said
    installed(root, newer[0], older[0])


def test_another_runs_folder_stays_while_it_runs(older: tuple[EnvLock, Path], folder: Path) -> None:
    root = folder / "root"
    living = root / f".unpack-{os.uname().nodename}-{os.getpid()}"
    elsewhere = root / ".unpack-elsewhere-1"
    for path in (living, elsewhere):
        path.mkdir(parents=True)
    assert install(older[1], root, folder=folder).returncode == 0
    assert {*root.glob(".unpack-*")} == {living, elsewhere}


def test_killed_at_many_moments_and_run_again(older: tuple[EnvLock, Path], folder: Path) -> None:
    """Sooner and later in its work; what is seen of the release is nothing, or all of it."""
    began = time.monotonic()
    assert install(older[1], folder / "whole", folder=folder).returncode == 0
    whole = time.monotonic() - began
    root, prefix = folder / "root", prefix_of(folder / "root", older[0])
    for part in range(1, 8):
        process = subprocess.Popen(
            ["sh", str(older[1]), "--root", str(root), "--no-smoke"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        time.sleep(whole * part / 7)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if prefix.exists():
            assert verify(prefix).ok
    ok(install(older[1], root, folder=folder))
    installed(root, older[0])


#: Run in a small file system of its own, as each of its lines says.
FULL_DISK = """
disk=$1 file=$2; shift 2
for moment in "$@"; do
  program=${moment% *} left=${moment#* }
  # Behind the check for free space: this program, when the bundle starts it, takes all but so much.
  mkdir -p "$disk/bin"
  cat >"$disk/bin/$program" <<END
#!/bin/sh
free=\\$(df -Pk $disk | tail -n 1 | awk '{print \\$4}')
head -c \\$(((free - $left) * 1024)) /dev/zero >>$disk/filler
exec /bin/$program "\\$@"
END
  chmod 755 "$disk/bin/$program"
  said=$(PATH=$disk/bin:$PATH sh "$file" --root "$disk/root" --no-smoke 2>&1)
  echo "$moment: $? $(echo "$said" | cut -d : -f 1 | tr '\\n' ' ')"
  echo "$said" >&2
  ls -d "$disk"/root/.unpack-* "$disk"/root/envs/mini/current 2>/dev/null
  rm "$disk/filler"
  sh "$file" --root "$disk/root" --no-smoke >/dev/null && echo resumed
  ls -d "$disk"/root/envs/mini/2* "$disk"/root/envs/mini/.[!.]* 2>/dev/null | wc -l
  "$PYTHON" -P -m ddlce env verify "$disk"/root/envs/mini/current >/dev/null && echo whole
  chmod -R u+w "$disk/root" && rm -r "$disk/root" "$disk/bin"
done
"""


@pytest.mark.skipif(not shutil.which("bwrap"), reason="needs bubblewrap")
def test_resumed_after_the_disk_was_full(older: tuple[EnvLock, Path], folder: Path) -> None:
    """When it starts a program, so many KiB are left: it stops sooner or later."""
    disk = folder / "disk"
    disk.mkdir()
    moments = ["mkdir 0", "tar 0", "tar 400", "tar 1500", "tar 3000"]
    cage = ["bwrap", "--die-with-parent", "--dev-bind", "/", "/"]
    cage += ["--size", str(32 << 20), "--tmpfs", str(disk)]
    done = run(
        [*cage, "sh", "-c", FULL_DISK, "sh", disk, older[1], *moments],
        env={**os.environ, "PATH": "/usr/bin:/bin", "PYTHON": sys.executable, "HOME": str(disk)},
    )
    said = done.stdout.splitlines()
    expected = []
    for moment in moments:
        expected += [f"{moment}: 3 error hint ", "resumed", "1", "whole"]
    assert said == expected, done.stdout + done.stderr
    assert "noexec" not in done.stderr


def test_a_damaged_bundle_beside_a_release(
    older: tuple[EnvLock, Path], newer: tuple[EnvLock, Path], folder: Path
) -> None:
    root = folder / "root"
    assert install(older[1], root, folder=folder).returncode == 0
    before = {path: path.lstat().st_mtime_ns for path in everything(root)}
    cut = folder / "cut.run"
    cut.write_bytes(newer[1].read_bytes()[:-100])
    done = install(cut, root, folder=folder)
    assert done.returncode == 4
    assert len(done.stderr.splitlines()) == 2
    assert {path: path.lstat().st_mtime_ns for path in everything(root)} == before
