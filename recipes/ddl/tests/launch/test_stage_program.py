"""The program ddl-stage on this host: what it makes, and what it says of each fault."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from ddl.launch.hydra import find_mpiexec

PROGRAM = Path(sys.executable).with_name("ddl-stage")
pytestmark = pytest.mark.skipif(not PROGRAM.is_file(), reason="built without ddl-stage")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MEGABYTE = 1 << 20


def zstd_frame(data: bytes) -> bytes:
    """A frame of raw blocks, as RFC 8878 has them: no package here can compress."""
    header = (0xFD2FB528).to_bytes(4, "little") + bytes([0, 0x38])  # a window of 128 KiB
    blocks = [data[start : start + 65536] for start in range(0, len(data), 65536)] or [b""]
    parts = [header]
    for number, block in enumerate(blocks, 1):
        last = number == len(blocks)
        parts += [(len(block) << 3 | last).to_bytes(3, "little"), block]
    return b"".join(parts)


def tar_of(size: int = 0) -> bytes:
    """A small environment: a program, a link, a source with its time, and a file of that size."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for name, data, mode in (
            ("bin/run", b"#!/bin/sh\n", 0o555),
            ("big", os.urandom(size), 0o444),
        ):
            info = tarfile.TarInfo(name)
            info.size, info.mode, info.mtime = len(data), mode, 1_700_000_000
            tar.addfile(info, io.BytesIO(data))
        link = tarfile.TarInfo("bin/alias")
        link.type, link.linkname = tarfile.SYMTYPE, "run"
        tar.addfile(link)
    return buffer.getvalue()


class Bench:
    """An image, a place for it, and the words that ddl-stage is called with."""

    def __init__(self, folder: Path, size: int = 0, tar: bytes | None = None) -> None:
        self.image = folder / "image.tar.zst"
        self.image.write_bytes(zstd_frame(tar_of(size) if tar is None else tar))
        self.place = folder / "place"
        self.said = {
            "image": str(self.image),
            "sha256": hashlib.sha256(self.image.read_bytes()).hexdigest(),
            "size": str(self.image.stat().st_size),
            "unpacked": str(size + 65536),
            "files": "4",
            "place": str(self.place),
            "name": "e-1",
            "keep": "86400",
        }

    @property
    def prefix(self) -> Path:
        return self.place / "e-1"

    def words(self, **changes: str) -> list[str]:
        said = {**self.said, **changes}
        pairs = [word for name, value in said.items() for word in (f"--{name}", value)]
        return [str(find_mpiexec()), "-n", "1", str(PROGRAM), *pairs]

    def start(self, **changes: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            self.words(**changes), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def run(self, **changes: str) -> tuple[int, str]:
        process = self.start(**changes)
        stdout, stderr = process.communicate(timeout=100)
        return process.returncode, stdout + stderr

    def fails(self, **changes: str) -> str:
        """What it says of a fault; then nothing half-unpacked is there."""
        status, said = self.run(**changes)
        assert status == 2, said
        assert self.left() == []
        return said

    def left(self) -> list[str]:
        """What is in the place beside locks and lists."""
        with suppress(OSError):
            names = (p.name for p in self.place.iterdir() if p.suffix not in (".lock", ".files"))
            return sorted(names)
        return []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    tmp_path.chmod(0o755)
    return Bench(tmp_path)


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def until(is_so: object, seconds: float = 20) -> None:
    assert callable(is_so)
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


def stagers_of(bench: Bench) -> list[int]:
    """The processes that work for this place: ddl-stage and its janitor."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (path / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if (path / "comm").read_text() == "ddl-stage\n" and str(bench.place) in words:
                found.append(int(path.name))
    return found


def is_rank(pid: int) -> bool:
    """Whether mpiexec's proxy has started it: a janitor is nobody's child."""
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return Path(f"/proc/{parent}/comm").read_text().startswith("hydra")


def started_at(pid: int) -> int:
    """The moment at which a process began, as the kernel counts."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


# -- what it makes ------------------------------------------------------------------------------


def test_an_image_is_unpacked_once(bench: Bench) -> None:
    before = os.umask(0o077)
    try:
        assert bench.run() == (0, "1 1 0\n")
    finally:
        os.umask(before)
    assert bench.left() == ["e-1"]
    assert bench.place.stat().st_mode & 0o777 == 0o700
    program = (bench.prefix / "bin" / "run").stat()
    assert (program.st_mode & 0o777, program.st_mtime) == (0o555, 1_700_000_000)
    assert (program.st_uid, bench.prefix.stat().st_mode & 0o777) == (os.geteuid(), 0o755)
    assert (bench.prefix / "bin" / "alias").readlink() == Path("run")
    bench.image.unlink()  # who has a copy reads no image
    assert bench.run()[0] == 2
    bench.image.write_bytes(b"x" * int(bench.said["size"]))
    assert bench.run() == (0, "1 0 0\n")


def test_jobs_that_come_together_unpack_once(bench: Bench, tmp_path: Path) -> None:
    several = Bench(tmp_path, size=30 * MEGABYTE)
    running = [several.start() for _ in range(3)]
    said = sorted(process.communicate(timeout=100)[0] for process in running)
    assert said == ["1 0 0\n", "1 0 0\n", "1 1 0\n"]


def test_unused_images_are_removed_after_some_time(bench: Bench) -> None:
    for name in ("e-old", "e-young", "e-used"):
        assert bench.run(name=name)[0] == 0
    old = time.time() - 2 * 86400
    for name in ("e-old", "e-used"):
        os.utime(bench.place / f"{name}.lock", (old, old))
    (bench.place / ".e-old.partial").mkdir()  # of a killed job
    with subprocess.Popen(["sleep", "100"], cwd=bench.place / "e-used") as user:
        assert bench.run() == (0, "1 1 1\n")
        assert bench.left() == ["e-1", "e-used", "e-young"]
        user.kill()
    assert bench.run() == (0, "1 0 1\n")
    assert bench.left() == ["e-1", "e-young"]


def test_an_image_that_was_just_used_stays_whatever_is_asked(bench: Bench) -> None:
    assert bench.run(name="e-other")[0] == 0
    assert bench.run(keep="0") == (0, "1 1 0\n")
    assert bench.left() == ["e-1", "e-other"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_stager_leaves_nothing(tmp_path: Path, number: int) -> None:
    bench = Bench(tmp_path, size=300 * MEGABYTE)
    process = bench.start()
    until(lambda: (bench.place / ".e-1.partial" / "big").exists())
    stagers = stagers_of(bench)
    assert len(stagers) == 2  # the second is the janitor, which was started later
    os.kill(min(stagers, key=started_at), number)
    process.communicate(timeout=60)
    until(lambda: bench.left() == [])
    until(lambda: not [pid for pid in stagers if Path(f"/proc/{pid}").exists()])
    assert bench.run() == (0, "1 1 0\n")


def test_a_host_that_no_longer_answers_is_noticed(tmp_path: Path) -> None:
    """As behind a cable that is cut: here one of two is stopped."""
    bench = Bench(tmp_path, size=100 * MEGABYTE)
    words = bench.words()
    words[words.index("-n") + 1] = "2"
    environ = {**os.environ, "DDL_TIMEOUT": "3"}
    process = subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    until(lambda: (bench.place / ".e-1.partial" / "big").exists())
    os.kill(next(filter(is_rank, stagers_of(bench))), signal.SIGSTOP)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert b"3 s" in errors, errors
    until(lambda: bench.left() in ([], ["e-1"]))


# -- faults -------------------------------------------------------------------------------------


def test_a_damaged_image(bench: Bench) -> None:
    data = bytearray(bench.image.read_bytes())
    data[-700] ^= 1
    bench.image.write_bytes(data)
    assert "the image is damaged: its sha256 is not" in bench.fails()
    data[20] ^= 0xFF  # now not even zstd can read it
    bench.image.write_bytes(data)
    assert "the image is damaged" in bench.fails()


def test_an_image_that_is_too_short_or_not_there(bench: Bench) -> None:
    bench.image.write_bytes(bench.image.read_bytes()[:-1])
    assert "image.tar.zst is damaged: it has" in bench.fails()
    bench.image.unlink()
    assert "image.tar.zst: No such file" in bench.fails()


def test_an_image_that_is_no_archive(tmp_path: Path) -> None:
    bench = Bench(tmp_path, tar=b"not an archive" * 1000)
    assert "cannot unpack in" in (said := bench.fails())
    assert "tar" in said


@needs_root
def test_a_full_disk_is_found_before_anything_is_sent(bench: Bench) -> None:
    with small_disk(bench.place, "size=1m,mode=700"):
        said = bench.fails(unpacked=str(2 * MEGABYTE))
        assert f"{bench.place} has 1 MB free, and the image needs 2 MB" in said
    bench.place.rmdir()
    with small_disk(bench.place, "size=8m,nr_inodes=6,mode=700"):
        assert "has space for" in bench.fails(files="100")


@needs_root
def test_a_disk_that_becomes_full(tmp_path: Path) -> None:
    bench = Bench(tmp_path, size=3 * MEGABYTE)
    with small_disk(bench.place, "size=2m,mode=700"):
        assert "the disk is full" in bench.fails(unpacked="1")


@needs_root
def test_a_disk_that_no_program_runs_from(bench: Bench) -> None:
    with small_disk(bench.place, "noexec,mode=700"):
        assert "mounted noexec" in bench.fails()


@needs_root
def test_another_users_place(bench: Bench) -> None:
    bench.place.mkdir(0o700)
    os.chown(bench.place, 65534, 65534)
    assert f"{bench.place} belongs to user 65534" in bench.fails()
    os.chown(bench.place, 0, 0)
    os.chown(bench.place.parent, 65534, 65534)
    assert f"{bench.place.parent} belongs to user 65534, who could replace" in bench.fails()


@needs_root
def test_another_users_copy(bench: Bench) -> None:
    assert bench.run()[0] == 0
    os.chown(bench.prefix, 65534, 65534)
    status, said = bench.run()
    assert status == 2
    assert f"{bench.prefix} belongs to user 65534" in said


def test_a_place_that_others_may_write(bench: Bench) -> None:
    bench.place.mkdir()
    bench.place.chmod(0o770)
    assert f"others may write {bench.place}" in bench.fails()
    bench.place.chmod(0o755)
    assert bench.run()[0] == 0
    assert bench.place.stat().st_mode & 0o777 == 0o700


def test_a_folder_above_that_everybody_may_write(bench: Bench) -> None:
    bench.place.parent.chmod(0o777)
    assert f"everybody may replace what is in {bench.place.parent}" in bench.fails()


def test_links_are_not_followed(bench: Bench, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(0o700)
    bench.place.symlink_to(target)
    assert f"{bench.place} is a link" in bench.fails()
    bench.place.unlink()
    bench.place.mkdir(0o700)
    (bench.place / "e-1.lock").symlink_to(target / "file")
    assert "cannot write" in bench.fails()
    assert not list(target.iterdir())
    (bench.place / "e-1.lock").unlink()
    bench.prefix.symlink_to(target)
    status, said = bench.run()
    assert (status, f"{bench.prefix} is a link" in said) == (2, True)


def test_a_place_whose_folder_is_not_there(bench: Bench) -> None:
    said = bench.fails(place="/nowhere/place")
    assert "/nowhere: No such file or directory" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--image is missing"),
        (["--image"], "--image needs a value"),
        (["--size", "x"], "--image is missing"),
    ],
)
def test_wrong_words(words: list[str], said: str) -> None:
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False)
    assert (done.returncode, said in done.stderr) == (2, True)


def test_words_that_are_no_numbers_or_names(bench: Bench) -> None:
    for changes, said in (
        ({"size": "-1"}, "--size -1: not a whole number"),
        ({"place": "here"}, "--place here: not an absolute path"),
        ({"name": "../x"}, "--name ../x: not a folder's name"),
    ):
        words = bench.words(**changes)[3:]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
