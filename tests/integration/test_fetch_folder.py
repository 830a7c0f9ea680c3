"""`ddlce fetch --out` and `--from`: a folder of sources for a machine without network."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from ddlce.model.source import Source
from ddlce.settings import Settings
from ddlce.sources import SourceStore
from support.run import ok, run
from support.sourceserver import Server, ddlce, lock, publish


def can_unshare() -> bool:
    return run(["unshare", "-n", "true"]).returncode == 0


def test_a_folder_serves_a_machine_without_network(
    server: Server, settings: Settings, tmp_path: Path
) -> None:
    sources = [publish(server, f"{n}.tar") for n in "ab"]
    lock(settings, *sources)
    stick = tmp_path / "stick"
    assert ddlce(settings, "fetch", "--out", str(stick)).returncode == 0
    server.content.clear()
    shutil.rmtree(settings.cache)
    alone = ("unshare", "-n") if can_unshare() else ()
    done = ok(ddlce(settings, "fetch", "--from", str(stick), "--json", prefix=alone))
    assert {r["how"] for r in json.loads(done.stdout)} == {"copied"}
    assert len(server.requests) == 2
    for source in sources:
        SourceStore(settings.sources).verify(source)


@pytest.mark.skipif(not can_unshare(), reason="may not make a network namespace")
def test_without_network_and_folder_the_message_says_so(server: Server, settings: Settings) -> None:
    lock(settings, publish(server, "a.tar"))
    done = ddlce(settings, "fetch", prefix=("unshare", "-n"))
    assert done.returncode == 4
    assert "cannot fetch" in done.stderr
    assert "ddlce fetch --from DIR" in done.stderr


def test_a_damaged_folder_is_named(server: Server, settings: Settings, tmp_path: Path) -> None:
    source = publish(server, "a.tar")
    lock(settings, source)
    stick = tmp_path / "stick"
    assert ddlce(settings, "fetch", "--out", str(stick)).returncode == 0
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
    both = ddlce(settings, "fetch", "--from", str(tmp_path), "--out", str(tmp_path))
    assert both.returncode == 2


def test_a_machine_without_apt_takes_debians_sources_from_a_folder(
    settings: Settings, tmp_path: Path
) -> None:
    """As on Red Hat and SUSE; without the folder the message names the client that is missing."""
    data = b"a source of Debian's"
    digest = hashlib.sha256(data).hexdigest()
    lock(
        settings,
        Source(
            client="debian-source",
            package="leaf",
            version="1-1",
            file="leaf_1.orig.tar.gz",
            size=len(data),
            sha256=digest,
        ),
    )
    programs = tmp_path / "programs"
    programs.mkdir()
    without = ("env", f"PATH={programs}")
    assert "apt-get" in ddlce(settings, "fetch", prefix=without).stderr
    stick = tmp_path / "stick"
    (stick / digest).mkdir(parents=True)
    (stick / digest / "leaf_1.orig.tar.gz").write_bytes(data)
    shutil.copy(settings.sources_lock, stick)
    done = ok(ddlce(settings, "fetch", "--from", str(stick), "--json", prefix=without))
    assert [row["how"] for row in json.loads(done.stdout)] == ["copied"]
