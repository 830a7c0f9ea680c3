"""`ddlce fetch` killed, interrupted, and run twice at once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from ddlce.locks import locked
from ddlce.settings import Settings
from ddlce.sources import SourceStore
from support.sourceserver import MB, Server, ddlce, environment, lock, publish

IN_OPEN = 0x20


def test_killed_at_any_moment_and_run_again(server: Server, settings: Settings) -> None:
    sources = [publish(server, f"{n}.tar", seed=n) for n in range(4)]
    lock(settings, *sources)
    server.delay = 0.05
    chance = random.Random(4)
    command = [sys.executable, "-m", "ddlce", "fetch"]
    for _ in range(4):
        running = subprocess.Popen(
            command, env=environment(settings), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        time.sleep(0.5 + chance.random() * 1.5)
        running.send_signal(signal.SIGKILL)
        running.wait()
        for source in sources:  # whatever is there under its final name is whole
            path = SourceStore(settings.sources).path(source)
            assert not path.exists() or path.read_bytes() == server.content[source.file]
    server.delay = 0
    assert ddlce(settings, "fetch").returncode == 0
    for source in sources:
        SourceStore(settings.sources).verify(source)
    assert not list(settings.sources.rglob(".partial/*"))


def test_two_at_once_share_the_work(server: Server, settings: Settings) -> None:
    sources = [publish(server, f"{n}.tar", seed=n) for n in range(4)]
    lock(settings, *sources)
    server.delay = 0.02
    command = [sys.executable, "-m", "ddlce", "fetch"]
    both = [subprocess.Popen(command, env=environment(settings)) for _ in range(2)]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert len(server.requests) == 4
    for source in sources:
        SourceStore(settings.sources).verify(source)


def test_an_interrupt_ends_quickly_and_says_how_to_go_on(
    server: Server, settings: Settings
) -> None:
    lock(settings, publish(server, "a.tar", 20 * MB))
    server.delay = 0.05
    running = subprocess.Popen(
        [sys.executable, "-m", "ddlce", "fetch"],
        env=environment(settings),
        stderr=subprocess.PIPE,
        text=True,
    )
    while not server.requests:
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "run the same command again" in errors
    assert "Traceback" not in errors


def test_an_interrupt_ends_a_run_that_waits_for_another(server: Server, settings: Settings) -> None:
    source = publish(server, "a.tar")
    lock(settings, source)
    file = settings.sources / source.sha256 / ".lock"
    with locked(file), opens(file) as seen:
        running = subprocess.Popen(
            [sys.executable, "-m", "ddlce", "fetch"],
            env=environment(settings),
            stderr=subprocess.PIPE,
            text=True,
        )
        assert select.select([seen], [], [], 120)[0]  # it has tried to take it, and will again
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors


@contextlib.contextmanager
def opens(path: Path) -> Iterator[int]:
    """A file that can be read once somebody has opened another one: inotify(7)."""
    libc = ctypes.CDLL(None, use_errno=True)
    seen = libc.inotify_init1(os.O_CLOEXEC)
    try:
        assert libc.inotify_add_watch(seen, os.fsencode(path), IN_OPEN) >= 0, ctypes.get_errno()
        yield seen
    finally:
        os.close(seen)
