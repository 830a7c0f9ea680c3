"""`ddlce sources update` over a group: wheels that fit together, from pip's real resolver."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ddlce.errors import InputError, SourceError
from ddlce.model.source import Source, SourcesLock
from ddlce.settings import Settings
from ddlce.sources import apt
from ddlce.sources.resolve import Request, Resolver, merged
from ddlce.sources.updating import chosen, update_sources
from ddlce.upkeep.outdated import find_outdated
from support.aptmirror import Mirror
from support.run import ok
from support.sourceserver import ddlce, lock
from support.wheelfiles import VARIANTS, lock_wheel, make_wheel

MIT = ("License-Expression: MIT",)


@pytest.fixture
def shelf(settings: Settings, wheelhouse: Path) -> Path:
    """A tree with locked wheels, and the folder that pip has."""
    (settings.recipes / "conda_build_config.yaml").write_text(VARIANTS)
    (settings.recipes / "wheels").mkdir()
    (settings.recipes / "wheels" / "install_wheel.py").write_text("")
    table = "wheels:\n  app:\n  apple:\n  base:\n  torch:\n"
    (settings.recipes / "wheels" / "wheels.yaml").write_text(
        table.replace("torch:", 'torch: {version: "1.0"}')
    )
    needs = (*MIT, "Requires-Dist: base", "Requires-Dist: forgone")
    lock(
        settings,
        lock_wheel(make_wheel(wheelhouse, "app", "1.0", metadata=needs)),
        lock_wheel(make_wheel(wheelhouse, "apple", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "base", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "torch", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "torch", "2.0")),
    )
    make_wheel(wheelhouse, "forgone")
    return wheelhouse


def versions(settings: Settings) -> list[str]:
    return [s.spec for s in SourcesLock.load(settings.sources_lock).sources]


def test_a_pattern_moves_what_fits_the_rest(shelf: Path, settings: Settings) -> None:
    """app 3.0 needs a newer base, which is not in the group; app 2.0 does not."""
    older = (*MIT, "Requires-Dist: base<2")
    make_wheel(shelf, "app", "2.0", metadata=older)
    make_wheel(shelf, "app", "3.0", metadata=(*MIT, "Requires-Dist: base>=2"))
    make_wheel(shelf, "apple", "1.5")
    make_wheel(shelf, "base", "2.0")
    ran = ok(ddlce(settings, "sources", "update", "pypi:app*"))
    assert [line.split(" (")[0] for line in ran.stdout.splitlines()] == [
        "locked pypi:app==2.0",
        "locked pypi:apple==1.5",
    ]
    rest = ["pypi:base==1.0", "pypi:torch==1.0", "pypi:torch==2.0"]
    assert versions(settings) == ["pypi:app==2.0", "pypi:apple==1.5", *rest]
    moved = [*update_sources(settings, chosen(settings, ["pypi:app", "pypi:base"]).requests)]
    assert {source.spec for source in moved} == {"pypi:app==3.0", "pypi:base==2.0"}


TAG = "cp311-cp311-manylinux_2_28_{}"


def on_platforms(shelf: Path, settings: Settings, name: str, *own: str) -> None:
    """Lock a wheel for linux-64 and linux-aarch64, of these versions."""
    for subdir, arch, version in zip(
        ("linux-64", "linux-aarch64"), ("x86_64", "aarch64"), own, strict=True
    ):
        path = make_wheel(shelf, name, version, tag=TAG.format(arch))
        before = SourcesLock.load(settings.sources_lock).sources
        lock(settings, *before, lock_wheel(path, subdir=subdir))
    with (settings.recipes / "wheels" / "wheels.yaml").open("a") as table:
        table.write(f"  {name}:\n")


def places(settings: Settings, *names: str) -> set[tuple[str, str | None, str]]:
    sources = SourcesLock.load(settings.sources_lock).sources
    return {(s.package, s.subdir, s.version) for s in sources if s.package in names}


def update(settings: Settings, *words: str) -> list[Source]:
    return [*update_sources(settings, chosen(settings, words).requests)]


def test_each_platform_moves_that_has_a_wheel(shelf: Path, settings: Settings) -> None:
    """Those of other platforms stayed behind, whether or not there were newer ones."""
    for name in ("both", "one"):
        on_platforms(shelf, settings, name, "1.0", "1.0")
        make_wheel(shelf, name, "2.0", tag=TAG.format("x86_64"))
    make_wheel(shelf, "both", "2.0", tag=TAG.format("aarch64"))
    update(settings, "pypi:both", "pypi:one")
    wanted = {
        *(("both", subdir, "2.0") for subdir in ("linux-64", "linux-aarch64")),
        ("one", "linux-64", "2.0"),
        ("one", "linux-aarch64", "1.0"),
    }
    assert places(settings, "both", "one") == wanted
    # Nothing has moved, and a pattern takes what platforms have in different versions.
    assert update(settings, "pypi:both", "pypi:one") == []
    assert not chosen(settings, ["pypi:on*"]).left
    make_wheel(shelf, "one", "2.0", tag=TAG.format("aarch64"))
    assert [s.subdir for s in update(settings, "pypi:both", "pypi:on*")] == ["linux-aarch64"]


def test_one_wheel_of_a_version_that_a_platform_has_not(shelf: Path, settings: Settings) -> None:
    on_platforms(shelf, settings, "one", "1.0", "1.0")
    make_wheel(shelf, "one", "2.0", tag=TAG.format("x86_64"))
    assert [s.subdir for s in update(settings, "pypi:one==2.0")] == ["linux-64"]
    assert places(settings, "one") == {("one", "linux-64", "2.0"), ("one", "linux-aarch64", "1.0")}
    with pytest.raises(SourceError, match="one==3"):
        update(settings, "pypi:one==3.0")


def test_what_cannot_be_had_is_no_absent_wheel(
    shelf: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A platform kept its old wheel, without a word, where a network or a disk failed."""
    on_platforms(shelf, settings, "both", "1.0", "1.0")
    for arch in ("x86_64", "aarch64"):
        make_wheel(shelf, "both", "2.0", tag=TAG.format(arch))
    before = settings.sources_lock.read_text()
    resolve = Resolver.resolve

    def broken(self: Resolver, request: Request, **options: Any) -> list[Source]:
        if self.subdir == "linux-aarch64":
            raise SourceError("the connection is broken")
        return resolve(self, request, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Resolver, "resolve", broken)
        with pytest.raises(SourceError, match="is broken"):
            update(settings, "pypi:both", "pypi:app")
    # Nor is it known where the registry names no version at all.
    for path in shelf.glob("both-*_aarch64.whl"):
        path.unlink()
    with pytest.raises(SourceError, match="No matching distribution"):
        update(settings, "pypi:both", "pypi:app")
    assert settings.sources_lock.read_text() == before


def test_no_platform_goes_back(shelf: Path, settings: Settings) -> None:
    """Not for another one, be its version older or newer."""
    on_platforms(shelf, settings, "behind", "2.0", "1.0")
    on_platforms(shelf, settings, "ahead", "1.0", "3.0")
    make_wheel(shelf, "behind", "1.0", tag=TAG.format("x86_64"))
    for arch in ("x86_64", "aarch64"):
        make_wheel(shelf, "ahead", "2.0", tag=TAG.format(arch))
    make_wheel(shelf, "app", "2.0", metadata=(*MIT, "Requires-Dist: behind<2"))
    update(settings, "pypi:app", "pypi:behind", "pypi:ahead")
    assert places(settings, "app", "behind", "ahead") == {
        ("app", None, "1.0"),
        *(("behind", "linux-64", "2.0"), ("behind", "linux-aarch64", "1.0")),
        *(("ahead", "linux-64", "2.0"), ("ahead", "linux-aarch64", "3.0")),
    }


def test_a_package_of_which_a_table_takes_one_version_stays(
    shelf: Path, settings: Settings
) -> None:
    """Moved, it left a tree that could not be built: the table's version was locked no more."""
    table = settings.recipes / "wheels" / "wheels.yaml"
    table.write_text(table.read_text().replace("  apple:", '  apple: {version: "1.0"}'))
    make_wheel(shelf, "apple", "1.5")
    make_wheel(shelf, "base", "1.5")
    before = versions(settings)
    ran = ddlce(settings, "sources", "update", "pypi:apple")
    assert ran.returncode == 2
    assert "recipes/wheels/wheels.yaml takes apple 1.0 alone" in ran.stderr
    assert versions(settings) == before
    assert chosen(settings, ["pypi:app*"]).left == {
        "pypi:apple": "its version stands in wheels.yaml"
    }
    (found,) = find_outdated(settings, ["pypi:apple"]).outdated
    assert (found.newest, found.held_by) == ("1.5", ("wheels.yaml (apple==1.0)",))
    (free,) = find_outdated(settings, ["pypi:base"]).outdated
    assert (free.newest, free.held_by) == ("1.5", ())
    table.write_text(table.read_text().replace('"1.0"', '"1.5"', 1))
    (moved,) = update_sources(settings, [Request.parse("pypi:apple==1.5")])
    assert moved.spec == "pypi:apple==1.5"


def test_a_package_in_several_versions_is_left(shelf: Path, settings: Settings) -> None:
    make_wheel(shelf, "apple", "1.5")
    group = chosen(settings, ["pypi:*"])
    assert group.left == {"pypi:torch": "locked in 2 versions"}
    assert {request.package for request in group.requests} == {"app", "apple", "base"}
    with pytest.raises(InputError, match="torch in 2 versions, of which one would be left"):
        [*update_sources(settings, chosen(settings, ["pypi:torch", "pypi:app"]).requests)]


def test_a_source_distribution_is_no_wheel_of_its_name(shelf: Path, settings: Settings) -> None:
    before = SourcesLock.load(settings.sources_lock).sources
    fields = {"client": "pypi-sdist", "file": "apple-1.0.tar.gz", "sha256": "0" * 64, "wheel": None}
    sdist = before[1].model_copy(update=fields)
    lock(settings, *before, sdist)
    assert sdist.spec == "pypi-sdist:apple==1.0"
    found = chosen(settings, ["pypi*:apple"]).requests
    assert {request.client for request in found} == {"pypi-wheel", "pypi-sdist"}


def test_what_a_newer_version_needs_too_is_named(shelf: Path, settings: Settings) -> None:
    before = versions(settings)
    make_wheel(shelf, "leaf")
    make_wheel(shelf, "apple", "2.0")
    needs = (*MIT, "Requires-Dist: forgone", "Requires-Dist: leaf")
    make_wheel(shelf, "app", "2.0", metadata=needs)
    with pytest.raises(InputError, match=r"app 2\.0 needs leaf too") as caught:
        [*update_sources(settings, chosen(settings, ["pypi:app*"]).requests)]
    assert caught.value.hint == ("add it first: ddlce sources add --with-dependencies pypi:leaf")
    assert versions(settings) == before


def test_versions_that_exclude_each_other(shelf: Path, settings: Settings) -> None:
    before = versions(settings)
    make_wheel(shelf, "app", "2.0", metadata=(*MIT, "Requires-Dist: base>=2"))
    make_wheel(shelf, "apple", "2.0")
    make_wheel(shelf, "base", "2.0")
    wanted = ["pypi:app==2.0", "pypi:apple"]
    with pytest.raises(SourceError, match=r"app==2\.0, apple>=1\.0: ") as caught:
        [*update_sources(settings, chosen(settings, wanted).requests)]
    assert "add those that are in the way to the group" in (caught.value.hint or "")
    assert versions(settings) == before


def test_a_pattern_that_fits_nothing(shelf: Path, settings: Settings) -> None:
    with pytest.raises(InputError, match=r"sources.lock has no package 'pypi:zoo\*'"):
        chosen(settings, ["pypi:zoo*"])


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_a_package_of_another_suite_stays_in_it(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was replaced by the machine's own, older version."""
    ours, theirs = Mirror(tmp_path / "ours"), Mirror(tmp_path / "theirs")
    etc = tmp_path / "etc" / "sources.list.d"
    etc.mkdir(parents=True)
    (etc / "test.list").write_text(f"deb [trusted=yes] file:{ours.folder} ./\n")
    monkeypatch.setattr(apt, "ETC", etc.parent)
    monkeypatch.setattr(apt, "_machine_suite", lambda: "ours")
    swapped = f"deb [trusted=yes] file:{theirs.folder} ./\n"
    monkeypatch.setattr(apt, "in_suite", lambda *_: swapped)
    ours.add_source("lib", "1.0-1", orig_tar=b"ours")
    theirs.add_source("lib", "2.0-1", orig_tar=b"theirs")
    ours.publish()
    theirs.publish()
    request = Request("debian-source", "lib")
    found: list[Source] = []
    for suite in ("", "trixie"):
        found = merged(
            SourcesLock(sources=found), Resolver(settings, suite=suite).resolve(request)
        ).sources
    lock(settings, *found)
    assert [(s.version, s.suite) for s in found] == [("1.0-1", ""), ("2.0-1", "trixie")]

    theirs.add_source("lib", "2.0-2", orig_tar=b"more of theirs")
    theirs.publish()
    (settings.cache / "apt").rename(tmp_path / "old-lists")
    moved = [*update_sources(settings, [request])]
    assert [(s.version, s.suite) for s in moved] == [("1.0-1", ""), ("2.0-2", "trixie")]
    now = SourcesLock.load(settings.sources_lock).sources
    assert [(s.version, s.suite) for s in now] == [("1.0-1", ""), ("2.0-2", "trixie")]
