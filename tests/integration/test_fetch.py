"""`ddlce fetch` with real clients: HTTP from a local server, pip, apt from a local mirror.

None of these tests needs the network.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ddlce.errors import SourceError
from ddlce.model.source import Source, SourcesLock
from ddlce.settings import Settings
from ddlce.sources import SourceStore, fetch_sources
from ddlce.sources import fetch as fetch_module
from support.wheelfiles import lock_wheel, make_wheel

MB = 1_000_000


class Server(ThreadingHTTPServer):
    """Serves bytes by path, with ranges; can be slow, cut connections or refuse."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.content: dict[str, bytes] = {}
        self.requests: list[tuple[str, str | None]] = []
        self.failures: dict[str, int] = {}
        self.cuts: dict[str, int] = {}
        self.delay = 0.0

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        name = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        self.server.requests.append((name, wanted))
        if self.server.failures.get(name, 0) > 0:
            self.server.failures[name] -= 1
            self.send_error(503)
            return
        if name not in self.server.content:
            self.send_error(404)
            return
        data = self.server.content[name]
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        cut = self.server.cuts.pop(name, len(data))
        for position in range(start, min(cut, len(data)), 65536):
            self.wfile.write(data[position : min(position + 65536, cut)])
            time.sleep(self.server.delay)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A tree with an empty lock."""
    tree = tmp_path / "tree"
    (tree / "recipes").mkdir(parents=True)
    (tree / "channel").mkdir()
    (tree / "channel" / "channel.yaml").touch()
    return tree


@pytest.fixture
def settings(tmp_path: Path, repo: Path) -> Settings:
    return Settings(repo=repo, cache=tmp_path / "cache", root=tmp_path / "root")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_module, "BACKOFF_S", (0.01, 0.01, 0.01))


def publish(server: Server, name: str, size: int = MB, seed: int = 1) -> Source:
    """Random bytes on the server, and their lock entry."""
    data = random.Random(f"{name}{seed}").randbytes(size)
    server.content[name] = data
    return Source(
        client="url",
        package=name.split(".")[0],
        file=name,
        size=size,
        sha256=hashlib.sha256(data).hexdigest(),
        url=server.url(name),
    )


def ddlce(settings: Settings, *arguments: str, prefix: tuple[str, ...] = ()) -> Any:
    return subprocess.run(
        [*prefix, sys.executable, "-m", "ddlce", *arguments],
        env=environment(settings),
        capture_output=True,
        text=True,
        timeout=300,
    )


def environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, "DDLCE_REPO": str(settings.repo), "DDLCE_CACHE": str(settings.cache)}


def lock(settings: Settings, *sources: Source) -> None:
    SourcesLock(sources=list(sources)).dump(settings.tree / "sources.lock")


def test_what_is_locked_arrives_once(server: Server, settings: Settings) -> None:
    sources = [publish(server, f"{n}.tar", seed=n) for n in range(5)]
    lock(settings, *sources)
    first = ddlce(settings, "fetch", "--json")
    assert first.returncode == 0, first.stderr
    report = json.loads(first.stdout)
    assert {r["how"] for r in report} == {"downloaded"}
    for entry in report:
        data = Path(entry["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == entry["sha256"]
    again = ddlce(settings, "fetch", "--json")
    assert {r["how"] for r in json.loads(again.stdout)} == {"present"}
    assert len(server.requests) == 5


def test_one_package_can_be_fetched(server: Server, settings: Settings) -> None:
    wanted, other = publish(server, "wanted.tar"), publish(server, "other.tar")
    lock(settings, wanted, other)
    assert ddlce(settings, "fetch", "wanted").returncode == 0
    store = SourceStore(settings.sources)
    assert store.intact(wanted)
    assert not store.intact(other)
    wrong = ddlce(settings, "fetch", "wantet")
    assert wrong.returncode == 2
    assert "did you mean wanted?" in wrong.stderr


def test_an_unwell_server_is_asked_again(server: Server, settings: Settings) -> None:
    source = publish(server, "a.tar")
    server.failures["a.tar"] = 2
    (fetched,) = fetch_sources([source], settings)
    assert fetched.how == "downloaded"
    assert len(server.requests) == 3


def test_a_cut_connection_is_resumed_where_it_ended(server: Server, settings: Settings) -> None:
    source = publish(server, "a.tar")
    server.cuts["a.tar"] = 600_000
    fetch_sources([source], settings)
    first, second = (wanted for _, wanted in server.requests)
    assert first is None
    assert second is not None
    assert 500_000 < int(second.removeprefix("bytes=").rstrip("-")) <= 600_000
    SourceStore(settings.sources).verify(source)


def test_a_missing_file_is_not_asked_for_again(server: Server, settings: Settings) -> None:
    source = publish(server, "a.tar")
    del server.content["a.tar"]
    lock(settings, source)
    done = ddlce(settings, "fetch")
    assert done.returncode == 4
    assert "cannot fetch" in done.stderr
    assert "HTTP 404" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(server.requests) == 1


def test_wrong_bytes_stop_the_fetch_and_are_not_kept(server: Server, settings: Settings) -> None:
    source = publish(server, "a.tar")
    good = publish(server, "b.tar")
    server.content["a.tar"] = random.Random(9).randbytes(MB)
    found = hashlib.sha256(server.content["a.tar"]).hexdigest()
    with pytest.raises(SourceError) as caught:
        fetch_sources([source, good], settings)
    assert "a.tar" in caught.value.message
    assert source.sha256 in caught.value.message
    assert found in caught.value.message
    store = SourceStore(settings.sources)
    assert not store.path(source).exists()
    assert store.intact(good)
    server.content["a.tar"] = random.Random("a.tar1").randbytes(MB)
    fetch_sources([source], settings)
    store.verify(source)


def test_all_failures_are_named_at_once(server: Server, settings: Settings) -> None:
    sources = [publish(server, f"{name}.tar") for name in "abc"]
    del server.content["a.tar"], server.content["c.tar"]
    with pytest.raises(SourceError, match="2 of 3 sources failed") as caught:
        fetch_sources(sources, settings)
    assert "a.tar" in caught.value.message
    assert "c.tar" in caught.value.message


@pytest.mark.parametrize("damage", ["truncate", "tamper", "delete"])
def test_damage_in_the_store_is_found_and_mended(
    server: Server, settings: Settings, damage: str
) -> None:
    source = publish(server, "a.tar")
    fetch_sources([source], settings)
    path = SourceStore(settings.sources).path(source)
    data = path.read_bytes()
    path.unlink()
    if damage != "delete":
        path.write_bytes(data[:-100] if damage == "truncate" else data[:-1] + b"!")
    (fetched,) = fetch_sources([source], settings)
    assert fetched.how == "downloaded"
    assert path.read_bytes() == data


def test_a_folder_serves_a_machine_without_network(
    server: Server, settings: Settings, tmp_path: Path
) -> None:
    sources = [publish(server, f"{n}.tar") for n in "ab"]
    lock(settings, *sources)
    stick = tmp_path / "stick"
    assert ddlce(settings, "fetch", "--into", str(stick)).returncode == 0
    server.content.clear()
    shutil.rmtree(settings.cache)
    alone = ("unshare", "-n") if can_unshare() else ()
    done = ddlce(settings, "fetch", "--from", str(stick), "--json", prefix=alone)
    assert done.returncode == 0, done.stderr
    assert {r["how"] for r in json.loads(done.stdout)} == {"copied"}
    assert len(server.requests) == 2
    for source in sources:
        SourceStore(settings.sources).verify(source)


@pytest.mark.skipif(
    subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode != 0,
    reason="may not make a network namespace",
)
def test_without_network_and_folder_the_message_says_so(server: Server, settings: Settings) -> None:
    lock(settings, publish(server, "a.tar"))
    done = ddlce(settings, "fetch", prefix=("unshare", "-n"))
    assert done.returncode == 4
    assert "cannot fetch" in done.stderr
    assert "ddlce fetch --from DIR" in done.stderr


def can_unshare() -> bool:
    return subprocess.run(["unshare", "-n", "true"], capture_output=True).returncode == 0


def test_a_damaged_folder_is_named(server: Server, settings: Settings, tmp_path: Path) -> None:
    source = publish(server, "a.tar")
    lock(settings, source)
    stick = tmp_path / "stick"
    assert ddlce(settings, "fetch", "--into", str(stick)).returncode == 0
    shutil.rmtree(settings.cache)
    file = stick / source.sha256 / "a.tar"
    data = file.read_bytes()
    file.unlink()
    missing = ddlce(settings, "fetch", "--from", str(stick))
    assert missing.returncode == 4
    assert f"{file}: missing" in missing.stderr
    file.write_bytes(data[:-1] + b"!")
    tampered = ddlce(settings, "fetch", "--from", str(stick))
    assert tampered.returncode == 4
    assert str(file) in tampered.stderr
    assert source.sha256 in tampered.stderr
    assert hashlib.sha256(file.read_bytes()).hexdigest() in tampered.stderr
    assert len(server.requests) == 1
    assert not SourceStore(settings.sources).path(source).exists()


def test_from_wants_a_complete_folder(settings: Settings, tmp_path: Path) -> None:
    lock(settings)
    empty = ddlce(settings, "fetch", "--from", str(tmp_path))
    assert empty.returncode == 2
    assert "not a complete folder of sources" in empty.stderr
    both = ddlce(settings, "fetch", "--from", str(tmp_path), "--into", str(tmp_path))
    assert both.returncode == 2


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


def test_a_read_only_store_is_an_error_of_the_machine(
    server: Server, settings: Settings, tmp_path: Path
) -> None:
    lock(settings, publish(server, "a.tar"))
    blocked = Settings(settings.repo, Path("/sys/no-such-place"), settings.root)
    done = ddlce(blocked, "fetch")
    assert done.returncode == 3
    assert "/sys/no-such-place" in done.stderr
    assert "Traceback" not in done.stderr


# --- pip


@pytest.fixture
def wheelhouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """pip finds packages here and nowhere else, through its ordinary configuration."""
    folder = tmp_path / "wheelhouse"
    folder.mkdir()
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    for name in [n for n in os.environ if n.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    return folder


def test_pip_brings_wheels(wheelhouse: Path, settings: Settings) -> None:
    sources = [
        lock_wheel(make_wheel(wheelhouse, "demo", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "local", "2.0+cpu")),
        lock_wheel(make_wheel(wheelhouse, "arch", tag="cp311-cp311-manylinux_2_17_x86_64")),
    ]
    make_wheel(wheelhouse, "demo", "1.1")
    assert {f.how for f in fetch_sources(sources, settings)} == {"downloaded"}
    for source in sources:
        SourceStore(settings.sources).verify(source)


def test_pip_does_not_take_another_file_of_the_same_name(
    wheelhouse: Path, settings: Settings
) -> None:
    source = lock_wheel(make_wheel(wheelhouse, "demo"))
    make_wheel(wheelhouse, "demo", files={"demo/evil.py": b"x = 1"})
    with pytest.raises(SourceError, match="is not the locked file"):
        fetch_sources([source], settings)
    assert not SourceStore(settings.sources).path(source).exists()


def test_a_version_that_is_gone_comes_from_upstream(
    wheelhouse: Path, server: Server, settings: Settings
) -> None:
    path = make_wheel(wheelhouse, "demo")
    source = lock_wheel(path, url=server.url("demo.whl"))
    server.content["demo.whl"] = path.read_bytes()
    path.unlink()
    fetch_sources([source], settings)
    SourceStore(settings.sources).verify(source)
    shutil.rmtree(settings.cache)
    server.content.clear()
    with pytest.raises(SourceError, match="No matching distribution") as caught:
        fetch_sources([source], settings)
    assert "HTTP 404" in caught.value.message


def test_sources_add_reads_a_wheel_into_the_lock(wheelhouse: Path, settings: Settings) -> None:
    make_wheel(wheelhouse, "demo", metadata=("License-Expression: MIT", "Requires-Dist: six"))
    done = ddlce(settings, "sources", "add", "pypi:demo")
    assert done.returncode == 0, done.stderr
    (source,) = SourcesLock.load(settings.tree / "sources.lock").sources
    assert source.wheel is not None
    assert source.wheel.requires_dist == ["six"]
    SourceStore(settings.sources).verify(source)
    make_wheel(wheelhouse, "demo", "2.0")
    assert ddlce(settings, "sources", "update", "pypi:demo").returncode == 0
    (source,) = SourcesLock.load(settings.tree / "sources.lock").sources
    assert source.version == "2.0"
    absent = ddlce(settings, "sources", "add", "pypi:absent")
    assert absent.returncode == 4
    assert "absent" in absent.stderr
    unlocked = ddlce(settings, "sources", "update", "pypi:absent")
    assert unlocked.returncode == 2


def test_sources_add_url_wants_a_digest(server: Server, settings: Settings) -> None:
    source = publish(server, "lib-1.2.tar.gz")
    unsure = ddlce(settings, "sources", "add", f"url:{source.url}")
    assert unsure.returncode == 2
    assert source.sha256 in unsure.stderr
    wrong = ddlce(settings, "sources", "add", f"url:{source.url}", "--sha256", "0" * 64)
    assert wrong.returncode == 4
    assert not (settings.tree / "sources.lock").exists()
    sure = ddlce(settings, "sources", "add", f"url:{source.url}", "--sha256", source.sha256)
    assert sure.returncode == 0, sure.stderr
    (locked,) = SourcesLock.load(settings.tree / "sources.lock").sources
    assert (locked.package, locked.version) == ("lib", "1.2")


RECIPE = """\
package: {{name: lib, version: "1"}}
source:
  url: {url}
  sha256: {sha256}
"""


def test_sync_makes_lock_and_recipes_agree(server: Server, settings: Settings) -> None:
    wanted, unused = publish(server, "lib-1.tar"), publish(server, "unused.tar")
    room = settings.recipes / "lib"
    room.mkdir()
    (room / "recipe.yaml").write_text(RECIPE.format(url=wanted.url, sha256=wanted.sha256))
    lock(settings, unused)
    before = ddlce(settings, "sources", "check")
    assert before.returncode == 1
    assert "lib-1.tar" in before.stderr
    assert "unused.tar) is used by no recipe" in before.stderr
    done = ddlce(settings, "sources", "sync")
    assert done.returncode == 0, done.stderr
    assert [s.file for s in SourcesLock.load(settings.tree / "sources.lock").sources] == [
        "lib-1.tar"
    ]
    assert ddlce(settings, "sources", "check").returncode == 0
    (room / "recipe.yaml").write_text(RECIPE.format(url=wanted.url, sha256="f" * 64))
    wrong = ddlce(settings, "sources", "sync")
    assert wrong.returncode == 4
    assert "recipe.yaml" in wrong.stderr
    assert wanted.sha256 in wrong.stderr
