"""Debian sources through a private apt, from a small real mirror on this machine's disk."""

from __future__ import annotations

import io
import shutil
import tarfile
import threading
from pathlib import Path

import pytest

from ddlce.errors import MachineError, SourceError
from ddlce.model.source import Source
from ddlce.settings import Settings
from ddlce.sources import SourceStore, apt, fetch_sources
from ddlce.sources import fetch as fetch_module
from ddlce.sources.resolve import Request, Resolver
from support.aptmirror import Mirror
from support.run import run

pytestmark = pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")


def tarball(text: str) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        info = tarfile.TarInfo("file")
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text.encode()))
    return stream.getvalue()


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    """The mirror that the machine's apt is set up for."""
    made = Mirror(tmp_path / "mirror")
    made.add_source("lib", "1.0-1", orig_tar=tarball("one"), debian_tar=tarball("patches"))
    made.add_source("lib", "1.0-2", orig_tar=tarball("one"), debian_tar=tarball("more"))
    made.add_binary("libx1", "2:3.4-5", b"not really a deb")
    made.publish()
    etc = tmp_path / "etc"
    (etc / "sources.list.d").mkdir(parents=True)
    (etc / "sources.list.d" / "test.list").write_text(f"deb [trusted=yes] file:{made.folder} ./\n")
    monkeypatch.setattr(apt, "ETC", etc)
    monkeypatch.setattr(fetch_module, "BACKOFF_S", (0.01,))
    return made


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(repo=None, cache=tmp_path / "cache", root=tmp_path / "root")


def lock(settings: Settings, text: str, files: str = "*") -> list[Source]:
    return Resolver(settings).resolve(Request.parse(text), files=files)


def machine_lists() -> list[str]:
    folder = Path("/var/lib/apt/lists")
    return sorted(f"{p.name} {p.stat().st_mtime_ns}" for p in folder.glob("*"))


def test_the_newest_version_is_locked_without_its_description(
    mirror: Mirror, settings: Settings
) -> None:
    sources = lock(settings, "debian-source:lib")
    assert [s.file for s in sources] == ["lib_1.0-2.orig.tar", "lib_1.0-2.debian.tar"]
    assert {s.version for s in sources} == {"1.0-2"}
    for source in sources:
        assert SourceStore(settings.sources).intact(source)


def test_a_file_says_which_version_is_meant(mirror: Mirror, settings: Settings) -> None:
    (source,) = lock(settings, "debian-source:lib", "lib_1.0-1.debian.tar")
    assert source.version == "1.0-1"


def test_what_was_locked_is_fetched_and_the_machine_s_apt_is_left_alone(
    mirror: Mirror, settings: Settings
) -> None:
    before = machine_lists()
    sources = [*lock(settings, "debian-source:lib=1.0-1"), *lock(settings, "debian-binary:libx1")]
    assert sources[-1].version == "2:3.4-5"
    assert sources[-1].subdir == "linux-64"
    shutil.rmtree(settings.cache)
    assert {f.how for f in fetch_sources(sources, settings)} == {"downloaded"}
    for source in sources:
        SourceStore(settings.sources).verify(source)
    assert machine_lists() == before


def test_a_version_that_left_the_mirror_is_named(mirror: Mirror, settings: Settings) -> None:
    sources = lock(settings, "debian-source:lib=1.0-1")
    shutil.rmtree(settings.sources)
    del mirror.sources[0]
    for file in mirror.folder.glob("lib_1.0-1*"):
        file.unlink()
    mirror.publish()
    with pytest.raises(SourceError) as caught:
        fetch_sources(sources, settings)
    assert "debian-source:lib=1.0-1" in caught.value.message
    assert caught.value.hint
    assert "ddlce sources update debian-source:lib" in caught.value.hint


POOL = "pool/main/l/late"


@pytest.fixture
def pooled(mirror: Mirror, settings: Settings) -> Source:
    """A source that was locked from the mirror's pool, on a machine that has nothing of it."""
    mirror.add_source("late", "1+b1", POOL, orig_tar=tarball("late"))
    mirror.publish()
    (source,) = lock(settings, "debian-source:late")
    shutil.rmtree(settings.cache)
    return source


def test_lists_that_do_not_fit_are_not_needed(
    mirror: Mirror, settings: Settings, pooled: Source
) -> None:
    assert pooled.pool == f"{POOL}/late_1+b1.orig.tar"
    (mirror.folder / "Sources").write_text("of another day than Release\n")
    fetch_sources([pooled], settings)
    SourceStore(settings.sources).verify(pooled)
    assert list((settings.cache / "apt").glob("*/lists/*Sources*")) == []


def test_a_file_that_left_its_place_is_found_by_the_lists(
    mirror: Mirror, settings: Settings, pooled: Source
) -> None:
    gone = pooled.model_copy(update={"pool": "pool/main/l/earlier/late_1.orig.tar"})
    fetch_sources([gone], settings)
    SourceStore(settings.sources).verify(gone)


def test_a_pool_with_other_bytes_and_lists_that_do_not_fit_is_an_error(
    mirror: Mirror, settings: Settings, pooled: Source
) -> None:
    (mirror.folder / pooled.pool).write_bytes(tarball("changed"))
    (mirror.folder / "Sources").write_text("of another day than Release\n")
    with pytest.raises(SourceError, match=r"debian-source:late=1\+b1"):
        fetch_sources([pooled], settings)
    assert not SourceStore(settings.sources).intact(pooled)


def test_the_machine_s_archives_are_those_of_its_sources(tmp_path: Path) -> None:
    parts = tmp_path / "amd64" / "sources.list.d"
    parts.mkdir(parents=True)
    (parts / "a.list").write_text(
        "deb [trusted=yes signed-by=/k.gpg] file:///mirror/ x main\n"
        "# deb file:///comment x main\n"
        "deb tor+file:///other x main\n"
    )
    (parts / "b.sources").write_text("Types: deb\nURIs: file:///mirror file:///second\nSuites: x\n")
    assert apt.Apt(tmp_path, "amd64")._archives() == ["file:///mirror", "file:///second"]


def test_old_lists_are_renewed(mirror: Mirror, settings: Settings) -> None:
    lock(settings, "debian-source:lib")
    mirror.add_source("late", "1", orig_tar=tarball("late"))
    mirror.publish()
    assert [s.package for s in lock(settings, "debian-source:late")] == ["late"]


def test_several_at_once_share_one_apt(mirror: Mirror, settings: Settings) -> None:
    for number in range(6):
        mirror.add_source(f"p{number}", "1", orig_tar=tarball(str(number)))
    mirror.publish()
    sources = [s for n in range(6) for s in lock(settings, f"debian-source:p{n}")]
    shutil.rmtree(settings.cache)
    errors: list[BaseException] = []

    def fetch_once() -> None:
        try:
            fetch_sources(sources, settings)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=fetch_once) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    for source in sources:
        SourceStore(settings.sources).verify(source)


@pytest.mark.parametrize("text", ["debian-source:absent", "debian-binary:absent"])
def test_an_unknown_package_is_named(mirror: Mirror, settings: Settings, text: str) -> None:
    with pytest.raises(SourceError, match="absent"):
        lock(settings, text)


def test_a_machine_without_apt_sources_is_told(
    mirror: Mirror, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(apt, "ETC", tmp_path / "nothing")
    with pytest.raises(MachineError, match="names no Debian source"):
        lock(settings, "debian-source:lib")


def test_dpkg_orders_the_versions() -> None:
    assert apt.newer("1.0~rc1", "1.0") == "1.0"
    assert apt.newer("1:0.1", "9") == "1:0.1"
    assert run(["dpkg", "--version"]).returncode == 0
