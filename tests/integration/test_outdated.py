"""`ddlce outdated`: newer versions, as the machine's own pip and apt know them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ddlce.cli import outdated as command
from ddlce.errors import SourceError
from ddlce.settings import Settings
from ddlce.sources import apt
from ddlce.sources.fetch import fetch_sources
from ddlce.sources.resolve import Request, Resolver
from ddlce.sources.updating import update_sources
from ddlce.upkeep.outdated import Outdated, find_outdated
from support.aptmirror import Mirror
from support.run import ok
from support.sourceserver import ddlce, lock
from support.wheelfiles import VARIANTS, lock_wheel, make_wheel


@pytest.fixture
def locked(settings: Settings, wheelhouse: Path) -> Path:
    """A tree with some locked wheels; returns the folder that pip has."""
    (settings.recipes / "conda_build_config.yaml").write_text(VARIANTS)
    needs = ("License-Expression: MIT", "Requires-Dist: held<2")
    sources = [
        lock_wheel(make_wheel(wheelhouse, "free", "1.9")),
        lock_wheel(make_wheel(wheelhouse, "held", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "holder", "1.0", metadata=needs)),
        lock_wheel(make_wheel(wheelhouse, "parted", "1.0")),
        lock_wheel(make_wheel(wheelhouse, "parted", "1.0+cpu")),
    ]
    lock(settings, *sources)
    return wheelhouse


def test_newer_wheels_are_named_with_what_holds_them(locked: Path, settings: Settings) -> None:
    make_wheel(locked, "free", "1.10")
    make_wheel(locked, "free", "2.0rc1")  # not released
    make_wheel(locked, "free", "3.0", tag="cp314-cp314-manylinux_2_17_x86_64")  # another Python's
    make_wheel(locked, "held", "2.0")
    make_wheel(locked, "parted", "2.0")
    before = settings.sources_lock.read_bytes()
    ran = ok(ddlce(settings, "outdated"))
    assert ran.stdout.splitlines() == [
        "newer     pypi:free: 1.9 → 1.10",
        "newer     pypi:held: 1.0 → 2.0; held by holder 1.0 (held<2)",
        "newer     pypi:parted: 1.0 → 2.0",
        "5 packages asked for, 3 of them with a newer version, 0 for security",
    ]
    assert settings.sources_lock.read_bytes() == before


def test_the_machines_own_constraints_count(
    locked: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pip's list of versions has those, too, that its resolver must not take."""
    make_wheel(locked, "free", "2.0")
    make_wheel(locked, "free", "3.0")
    (tmp_path / "held.txt").write_text("# of this site\n-c more.txt\nfree<3  # a cap\n")
    (tmp_path / "more.txt").write_text("")
    monkeypatch.setenv("PIP_CONSTRAINT", str(tmp_path / "held.txt"))
    (found,) = find_outdated(settings, ["pypi:free"]).outdated
    assert found.newest == "2.0"


def test_a_file_whose_name_has_no_version_does_not_hide_the_others(
    locked: Path, settings: Settings
) -> None:
    """Old projects have archives of binaries, in whose names an older pip reads a version."""
    sdist = {"client": "pypi-sdist", "file": "old-0.7.tar.gz", "sha256": "0" * 64, "wheel": None}
    wheel = lock_wheel(make_wheel(locked, "old", "0.7"))
    lock(settings, wheel.model_copy(update=sdist))
    for name in ("old-0.8.tar.gz", "old-0.8.1.macosx-10.5-x86_64.tar.gz"):
        (locked / name).write_bytes(b"")
    (found,) = find_outdated(settings, ["pypi-sdist:old"]).outdated
    assert found.newest == "0.8"


def test_some_packages_alone_as_json(locked: Path, settings: Settings) -> None:
    make_wheel(locked, "held", "2.0")
    ran = ddlce(settings, "outdated", "pypi:he*", "--json")
    said = json.loads(ran.stdout)
    assert (said["asked"], said["unknown"]) == (1, {})
    (found,) = said["outdated"]
    assert (found["place"]["package"], found["locked"], found["newest"]) == ("held", "1.0", "2.0")


def test_a_package_that_is_not_locked(locked: Path, settings: Settings) -> None:
    ran = ddlce(settings, "outdated", "pypi:absent")
    assert ran.returncode == 2
    assert "sources.lock has no package 'pypi:absent'" in ran.stderr


def test_a_package_that_pip_has_lost_does_not_hide_the_others(
    locked: Path, settings: Settings
) -> None:
    make_wheel(locked, "free", "2.0")
    (locked / "held-1.0-py3-none-any.whl").unlink()
    ran = ddlce(settings, "outdated")
    assert ran.returncode == 4
    assert "pypi:free: 1.9 → 2.0" in ran.stdout
    assert "error: pypi:held: " in ran.stderr


def test_withdrawn_wheels_are_named(
    locked: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As PEP 592 has it; pip takes them no more, unless by their exact version."""
    make_wheel(locked, "free", "1.8")
    page = tmp_path / "index.html"
    withdrawn, mark = ("free-1.9", "parted-1.0+"), ' data-yanked="broken"'
    lines = [
        f'<a href="{path.as_uri()}"{mark * path.name.startswith(withdrawn)}>{path.name}</a>\n'
        for path in sorted(locked.glob("*.whl"))
    ]
    page.write_text("<!DOCTYPE html>\n" + "".join(lines))
    monkeypatch.setenv("PIP_FIND_LINKS", str(page))
    held = tmp_path / "held.txt"
    held.write_text("free<1\n")
    monkeypatch.setenv("PIP_CONSTRAINT", str(held))
    ran = ok(ddlce(settings, "outdated", "--withdrawn"))
    assert ran.stdout.splitlines() == [
        "withdrawn pypi:free: 1.9: broken",
        "withdrawn pypi:parted (+cpu): 1.0+cpu: broken",
        "5 packages asked for, 0 of them with a newer version, 0 for security, 2 withdrawn",
    ]
    assert json.loads(ddlce(settings, "outdated", "--json").stdout)["withdrawn"] == []
    (locked / "holder-1.0-py3-none-any.whl").unlink()
    page.write_text(page.read_text().replace("holder-1.0", "other-1.0"))
    ran = ddlce(settings, "outdated", "--withdrawn", "pypi:holder")
    assert ran.returncode == 4
    assert "whether wheels were withdrawn" in ran.stderr


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_security_updates_of_debian_come_first(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, security = Mirror(tmp_path / "debian"), Mirror(tmp_path / "debian-security")
    for name in ("alib", "blib", "clib"):
        plain.add_source(name, "1.0-9", orig_tar=name.encode())
    etc = tmp_path / "etc" / "sources.list.d"
    etc.mkdir(parents=True)
    lines = [f"deb [trusted=yes] file:{mirror.folder} ./\n" for mirror in (plain, security)]
    (etc / "test.list").write_text("".join(lines))
    monkeypatch.setattr(apt, "ETC", etc.parent)
    plain.publish()
    security.publish()
    names = ("alib", "blib", "clib")
    found = [Resolver(settings).resolve(Request("debian-source", name)) for name in names]
    lock(settings, *(source for sources in found for source in sources))
    plain.add_source("alib", "1.0-10", orig_tar=b"a")
    security.add_source("blib", "1.0-9+deb12u1", orig_tar=b"b")
    plain.publish()
    security.publish()

    answer = find_outdated(settings)
    assert (answer.asked, answer.unknown) == (3, {})

    def said(each: Outdated) -> tuple[str, str, bool]:
        return each.place.spec, each.newest, each.security

    assert [said(each) for each in answer.outdated] == [
        ("debian-source:blib", "1.0-9+deb12u1", True),
        ("debian-source:alib", "1.0-10", False),
    ]


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_patches_that_are_older_than_the_source_they_belong_to(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file of upstream was locked once more, by a version whose patches are not taken."""
    mirror = Mirror(tmp_path / "debian-security")
    mirror.add_source("alib", "1.0-9", orig_tar=b"a")
    etc = tmp_path / "etc" / "sources.list.d"
    etc.mkdir(parents=True)
    (etc / "test.list").write_text(f"deb [trusted=yes] file:{mirror.folder} ./\n")
    monkeypatch.setattr(apt, "ETC", etc.parent)
    mirror.publish()
    sources = [*Resolver(settings).resolve(Request("debian-source", "alib"))]
    other = {"file": "alib_1.0-9.debian.tar.xz", "sha256": "0" * 64}
    patches = sources[0].model_copy(update=other)
    mirror.add_source("alib", "1.0-9+deb12u1", orig_tar=b"a")
    mirror.publish()
    later = sources[0].model_copy(update={"version": "1.0-9+deb12u1"})
    for order in ((patches, later), (later, patches)):
        lock(settings, *order)
        (found,) = find_outdated(settings).outdated
        assert (found.locked, found.newest) == ("1.0-9", "1.0-9+deb12u1")
        assert found.security


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_security_updates_of_another_suite(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package that is locked from another release than the machine's."""
    plain, security = Mirror(tmp_path / "debian"), Mirror(tmp_path / "debian-security")
    plain.add_source("alib", "2.0-1", orig_tar=b"a")
    etc = tmp_path / "etc" / "sources.list.d"
    etc.mkdir(parents=True)
    lines = [
        f"deb [trusted=yes] file:{plain.folder} ours main\n",
        f"deb [trusted=yes] file:{security.folder} ours-security main\n",
    ]
    (etc / "test.list").write_text("".join(lines))
    monkeypatch.setattr(apt, "ETC", etc.parent)
    monkeypatch.setattr(apt, "_machine_suite", lambda: "ours")
    plain.publish("trixie")
    security.publish("trixie-security")
    locked = Resolver(settings, suite="trixie").resolve(Request("debian-source", "alib"))
    lock(settings, *locked)
    assert find_outdated(settings).outdated == ()
    security.add_source("alib", "2.0-1+deb13u1", "pool/updates/main/a", orig_tar=b"mended")
    security.publish("trixie-security")

    (found,) = find_outdated(settings).outdated
    assert (found.newest, found.security) == ("2.0-1+deb13u1", True)
    (moved,) = update_sources(settings, [Request("debian-source", "alib")])
    assert (moved.version, moved.suite, moved.area) == ("2.0-1+deb13u1", "trixie", "")
    assert moved.pool.startswith("pool/updates/main/a/")
    fetch_sources([moved], settings)
    assert (settings.sources / moved.sha256 / moved.file).read_bytes() == b"mended"


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_an_archive_that_is_out_of_step_does_not_hide_the_others(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mirror that is being renewed has lists for a while that do not fit together."""
    mirror = Mirror(tmp_path / "debian")
    for name in ("alib", "blib", "clib"):
        mirror.add_source(name, "1.0-9", orig_tar=name.encode())
    etc = tmp_path / "etc" / "sources.list.d"
    etc.mkdir(parents=True)
    (etc / "test.list").write_text(f"deb [trusted=yes] file:{mirror.folder} ours main\n")
    monkeypatch.setattr(apt, "ETC", etc.parent)
    monkeypatch.setattr(apt, "_machine_suite", lambda: "ours")
    mirror.publish("ours")
    mirror.publish("trixie")
    sources = [*Resolver(settings).resolve(Request("debian-source", "alib"))]
    for name in ("blib", "clib"):
        of_trixie = Resolver(settings, suite="trixie")
        sources += of_trixie.resolve(Request("debian-source", name))
    lock(settings, *sources)
    mirror.add_source("alib", "1.0-10", orig_tar=b"a")
    mirror.publish("ours")
    shutil.rmtree(mirror.folder / "dists" / "trixie")

    answer = find_outdated(settings)
    assert [each.place.package for each in answer.outdated] == ["alib"]
    assert list(answer.unknown) == ["debian-source:blib", "debian-source:clib"]
    assert "dists/trixie" in answer.unknown["debian-source:blib"]
    monkeypatch.setattr(command, "load_settings", lambda: settings)
    with pytest.raises(SourceError, match=r"^debian-source:blib, debian-source:clib: E: "):
        command.outdated(["debian-source:[bc]lib"])
