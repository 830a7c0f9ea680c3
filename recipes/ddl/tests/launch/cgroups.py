"""A cgroup for the time of a test."""

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def cgroup(parent: Path, limits: Mapping[str, str]) -> Iterator[Path]:
    """A cgroup below `parent`, with the first of the limits that it has a file for.

    Skips the test where none can be made.
    """
    folder = parent / f"ddl-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        name = next((name for name in limits if (folder / name).exists()), next(iter(limits)))
        (folder / name).write_text(limits[name])
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        pytest.skip(f"no such cgroup can be made: {error.strerror}")
    try:
        yield folder
    finally:
        # A program that sweeps /dev/shm lives for seconds after its job, and a cgroup until then.
        deadline = time.monotonic() + 30
        while (folder / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        folder.rmdir()
