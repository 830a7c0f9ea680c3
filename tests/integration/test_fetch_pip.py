"""Sources that the machine's own pip finds, in a folder of wheels: fetched, and locked."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ddlce.errors import SourceError
from ddlce.model.source import SourcesLock
from ddlce.settings import Settings
from ddlce.sources import SourceStore, fetch_sources
from support.run import ok
from support.sourceserver import Server, ddlce
from support.wheelfiles import lock_wheel, make_wheel


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
    ok(ddlce(settings, "sources", "add", "pypi:demo"))
    (source,) = SourcesLock.load(settings.sources_lock).sources
    assert source.wheel is not None
    assert source.wheel.requires_dist == ["six"]
    SourceStore(settings.sources).verify(source)
    make_wheel(wheelhouse, "demo", "2.0")
    assert ddlce(settings, "sources", "update", "pypi:demo").returncode == 0
    (source,) = SourcesLock.load(settings.sources_lock).sources
    assert source.version == "2.0"
    make_wheel(wheelhouse, "demo", "3.0")
    assert ddlce(settings, "sources", "add", "--beside", "pypi:demo==3.0").returncode == 0
    before = settings.sources_lock.read_bytes()
    several = ddlce(settings, "sources", "update", "pypi:demo")
    assert several.returncode == 2
    assert "has demo in 2 versions, of which one would be left: 2.0, 3.0" in several.stderr
    assert "ddlce sources add --beside pypi:demo==VERSION" in several.stderr
    assert settings.sources_lock.read_bytes() == before
    absent = ddlce(settings, "sources", "add", "pypi:absent")
    assert absent.returncode == 4
    assert "absent" in absent.stderr
    unlocked = ddlce(settings, "sources", "update", "pypi:absent")
    assert unlocked.returncode == 2
