"""`ddlce fetch` with a real HTTP server; needs no network."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path
from urllib.parse import quote

import pytest

from ddlce.errors import SourceError
from ddlce.model.source import Source
from ddlce.settings import Settings
from ddlce.sources import SourceStore, fetch_sources
from support.run import ok
from support.sourceserver import MB, Server, ddlce, lock, publish


def test_what_is_locked_arrives_once(server: Server, settings: Settings) -> None:
    sources = [publish(server, f"{n}.tar", seed=n) for n in range(5)]
    lock(settings, *sources)
    first = ok(ddlce(settings, "fetch", "--json"))
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


def test_a_read_only_store_is_an_error_of_the_machine(server: Server, settings: Settings) -> None:
    lock(settings, publish(server, "a.tar"))
    blocked = Settings(settings.repo, Path("/sys/no-such-place"), settings.root)
    done = ddlce(blocked, "fetch")
    assert done.returncode == 3
    assert "/sys/no-such-place" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_killed_run_left_beside_a_stored_file_is_removed(
    server: Server, settings: Settings
) -> None:
    source = publish(server, "a.tar")
    fetch_sources([source], settings)
    home = SourceStore(settings.sources).path(source).parent
    before = sorted(home.iterdir())
    (home / ".partial").mkdir()
    for name in (".partial/a.tar", ".a.tar.4711", "..verified.k2x9"):
        (home / name).write_bytes(b"left")
    (fetched,) = fetch_sources([source], settings)
    assert fetched.how == "present"
    assert sorted(home.iterdir()) == before


def test_debian_s_files_come_from_the_archive_that_a_setting_names(
    server: Server, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without apt; a file that is not the locked one is refused there, too."""
    good, bad = (deb(name, b"bytes of " + name.encode()) for name in ("good", "bad"))
    server.content["debian/" + quote(good.pool)] = b"bytes of good"
    server.content["debian/" + quote(bad.pool)] = b"BYTES OF bad"
    lock(settings, good, bad)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setenv("DDLCE_DEBIAN_ARCHIVE", server.url("debian/"))
    done = ok(ddlce(settings, "fetch", "good"))
    assert SourceStore(settings.sources).path(good).read_bytes() == b"bytes of good"
    done = ddlce(settings, "fetch", "bad")
    assert done.returncode == 4
    assert "the download is not the locked file" in done.stderr


def deb(name: str, data: bytes) -> Source:
    """The lock's entry of a Debian package."""
    file = f"{name}_1+b1_amd64.deb"
    return Source(
        client="debian-binary",
        package=name,
        version="1+b1",
        file=file,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        subdir="linux-64",
        pool=f"pool/main/{name[0]}/{name}/{file}",
    )
