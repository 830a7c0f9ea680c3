"""`ddlce fetch` killed, interrupted, and run twice at once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from ddlce.locks import locked
from ddlce.settings import Settings
from ddlce.sources import SourceStore
from support.sourceserver import MB, Server, ddlce, environment, lock, publish


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
    with locked(settings.sources / source.sha256 / ".lock"):
        running = subprocess.Popen(
            [sys.executable, "-m", "ddlce", "fetch"],
            env=environment(settings),
            stderr=subprocess.PIPE,
            text=True,
        )
        while not waits_for_lock(running.pid):
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in errors


def waits_for_lock(process: int) -> bool:
    """Whether a process has the source's lock file open, which it then cannot lock."""
    try:
        names = [path.readlink() for path in Path(f"/proc/{process}/fd").iterdir()]
    except OSError:  # a descriptor that was closed meanwhile
        return False
    return any(name.name == ".lock" for name in names)
