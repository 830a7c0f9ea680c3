"""`ddlce.files`: atomic writes, locks, and errors of the system that name their cause."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ddlce.engine.index import publish_index
from ddlce.errors import MachineError
from ddlce.files import (
    explain_os_error,
    explain_os_errors,
    link_atomic,
    link_or_copy,
    make_folder,
    on_disk_at_end,
    write_atomic,
)
from ddlce.locks import locked, scratch
from support.minienv import as_nobody

Write = Callable[[Path], object]


def take_lock(path: Path) -> None:
    with locked(path):
        pass


WRITES: list[Write] = [
    lambda path: write_atomic(path, "text"),
    lambda path: link_or_copy(Path(__file__), path),
    take_lock,
    lambda path: publish_index(path, []),
]


@pytest.mark.parametrize("write", WRITES, ids=["write", "link", "lock", "channel"])
@pytest.mark.parametrize("below", ["x", "x/y/z"])
def test_a_file_where_a_folder_must_be_is_named(tmp_path: Path, write: Write, below: str) -> None:
    plain = tmp_path / "plain"
    plain.write_text("mine")
    with pytest.raises(MachineError) as caught:
        write(plain / below)
    assert caught.value.message == f"cannot write {plain / below}: {plain} is a file, not a folder"
    assert caught.value.hint
    assert plain.read_text() == "mine"


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("gone")
    with pytest.raises(MachineError, match=f"{link} is a link to nothing, not a folder"):
        write_atomic(link / "x", "text")


def test_a_folder_where_a_file_must_be_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    for write in (WRITES[0], take_lock):
        with pytest.raises(MachineError, match=f"cannot write {folder}: it is a folder"):
            write(folder)
    assert list(tmp_path.iterdir()) == [folder]


def test_a_missing_source_of_a_copy_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    with pytest.raises(MachineError) as caught:
        link_or_copy(source, target)
    assert f"cannot write {target}" in caught.value.message
    assert str(source) in caught.value.message


def test_a_name_that_is_too_long_is_explained(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="File name too long"):
        write_atomic(tmp_path / ("x" * 300), "text")


def test_a_full_disk_and_a_forbidden_folder(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=f"no space left while writing {tmp_path}"):
        with explain_os_errors(tmp_path):
            raise OSError(errno.ENOSPC, "No space left on device")  # write(2) names no file
    with pytest.raises(MachineError, match=f"cannot write {tmp_path}: Permission denied"):
        with explain_os_errors(tmp_path):
            raise PermissionError(errno.EACCES, "Permission denied", str(tmp_path / "x"))


def test_nothing_can_be_written_in_a_closed_folder(public: Path) -> None:
    def write() -> None:
        with pytest.raises(MachineError, match=f"cannot write {public}/x: Permission denied"):
            write_atomic(public / "x", "text")

    public.chmod(0o555)
    as_nobody(public, write)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "no space left while writing a file"),
        (PermissionError(errno.EACCES, "Permission denied", "/a"), "cannot use /a: Permission"),
        (FileNotFoundError(errno.ENOENT, "No such file", "tool"), "cannot use tool: No such file"),
        (FileNotFoundError(errno.ENOENT, "No such file"), "the system says: No such file"),
        (OSError("no errno at all"), "the system says: no errno at all"),
        (OSError(errno.EIO, "Input/output error", 7), "cannot use 7: Input/output error"),
    ],
)
def test_every_error_of_the_system_gets_a_message(error: OSError, message: str) -> None:
    designed = explain_os_error(error)
    assert designed.message.startswith(message)
    assert designed.hint
    assert designed.exit_code == 3


def test_an_error_of_another_file_says_which(tmp_path: Path) -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "/other")
    message = explain_os_error(error, tmp_path).message
    assert message == f"cannot write {tmp_path}: No such file or directory: /other"


def test_many_make_the_same_folders_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(4)

    def make(number: int) -> None:
        together.wait()
        make_folder(tmp_path / str(number) / "a/b/c")

    with ThreadPoolExecutor(4) as pool:
        for number in range(300):
            for done in [pool.submit(make, number) for _ in range(4)]:
                done.result()


def test_a_folder_that_nobody_can_make_is_an_error() -> None:
    with pytest.raises(FileNotFoundError):
        make_folder(Path("/proc/none/below"))


def kill_in(function: str, code: str, *arguments: Path) -> None:
    """Run code in a process that ends, as by a kill, where it calls a function of `os`."""
    script = f"import os, sys\nfrom pathlib import Path\nos.{function} = lambda *_: os._exit(9)\n"
    script += f"Path.replace = Path.symlink_to = lambda *_: os._exit(9)\n{code}"
    command = [sys.executable, "-c", script, *map(str, arguments)]
    assert subprocess.run(command, check=False).returncode == 9


@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("fchmod", "from ddlce.files import write_atomic as f; f(Path(sys.argv[1]), 'longer')"),
        ("write", "from ddlce.files import write_atomic as f; f(Path(sys.argv[1]), 'longer')"),
        ("x", "from ddlce.files import link_atomic as f; f(Path(sys.argv[1]), 'longer')"),
        (
            "x",
            "from ddlce.files import link_or_copy as f; f(Path('/etc/passwd'), Path(sys.argv[1]))",
        ),
    ],
)
def test_what_a_killed_writer_left_is_gone_after_the_next(
    tmp_path: Path, function: str, code: str
) -> None:
    kill_in(function, code, tmp_path / "file")
    assert not (tmp_path / "file").exists()
    write = link_atomic if "link_atomic" in code else write_atomic
    if "link_or_copy" in code:
        link_or_copy(Path(__file__), tmp_path / "file")
    else:
        write(tmp_path / "file", "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    if write is write_atomic and "link_or_copy" not in code:
        assert (tmp_path / "file").read_text() == "new"


def test_many_write_one_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    texts = [str(number) * 5000 for number in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write_atomic, path, text) for text in texts * 20]:
            done.result()
            assert path.read_text() in texts
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_brought_to_the_disk_is_not_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomic(path, "old")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(MachineError, match=f"cannot write {path}: Input/output error"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    with on_disk_at_end(tmp_path):  # it is brought there with all the others
        write_atomic(path, "new")
    assert path.read_text() == "new"


def test_a_killed_run_s_scratch_is_removed_and_a_working_one_s_is_not(tmp_path: Path) -> None:
    code = "import os, sys\nfrom pathlib import Path\nfrom ddlce.locks import scratch\n"
    code += "with scratch(Path(sys.argv[1]), '.add-') as f:\n    (f / 'x').touch(); os._exit(9)\n"
    subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    (left,) = tmp_path.glob(".add-*/")
    with scratch(tmp_path, ".add-") as one, scratch(tmp_path, ".add-") as two:
        assert not left.exists()
        assert one.is_dir()
        assert two.is_dir()
    assert list(tmp_path.glob(".add-*/")) == []


def test_many_have_a_scratch_at_once(tmp_path: Path) -> None:
    """One's folder is removed by its owner while another looks through all of them."""

    def work(_: int) -> None:
        with scratch(tmp_path, ".add-") as folder:
            (folder / "x").touch()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(400)))
    assert list(tmp_path.glob(".add-*/")) == []
