"""The source store: right bytes are kept, wrong ones are found."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ddlce.errors import SourceError
from ddlce.model.source import Source
from ddlce.sources.store import SourceStore

DATA = b"some bytes\n" * 1000


@pytest.fixture
def source() -> Source:
    return Source(
        client="url",
        package="x",
        file="x.bin",
        size=len(DATA),
        sha256=hashlib.sha256(DATA).hexdigest(),
        url="https://x.org/x.bin",
    )


@pytest.fixture
def store(tmp_path: Path, source: Source) -> SourceStore:
    store = SourceStore(tmp_path / "store")
    file = tmp_path / "arrived"
    file.write_bytes(DATA)
    assert store.add(source, file) == store.path(source)
    file.unlink()
    return store


def test_added_bytes_are_there(store: SourceStore, source: Source) -> None:
    assert store.path(source).read_bytes() == DATA
    assert store.path(source) == store.root / source.sha256 / "x.bin"
    assert store.intact(source)
    store.verify(source)


def test_wrong_bytes_are_not_taken(tmp_path: Path, source: Source) -> None:
    file = tmp_path / "arrived"
    file.write_bytes(DATA[:-1] + b"!")
    with pytest.raises(SourceError) as caught:
        SourceStore(tmp_path / "store").add(source, file)
    assert source.sha256 in caught.value.message
    assert hashlib.sha256(file.read_bytes()).hexdigest() in caught.value.message
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("change", [DATA[:-1], DATA[:-1] + b"!", b""])
def test_changed_bytes_are_found(store: SourceStore, source: Source, change: bytes) -> None:
    path = store.path(source)
    path.write_bytes(change)
    os.utime(path, ns=(1, 1))  # whatever the clock's resolution
    assert not store.intact(source)
    with pytest.raises(SourceError) as caught:
        store.verify(source)
    assert str(path) in caught.value.message
    assert source.sha256 in caught.value.message


def test_verify_reads_the_bytes_even_if_the_file_looks_the_same(
    store: SourceStore, source: Source
) -> None:
    path = store.path(source)
    stat = path.stat()
    path.write_bytes(DATA[:-1] + b"!")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert store.intact(source)  # the quick check trusts size and mtime
    with pytest.raises(SourceError, match="not the locked bytes"):
        store.verify(source)


def test_a_missing_source_is_named(tmp_path: Path, source: Source) -> None:
    store = SourceStore(tmp_path)
    assert not store.intact(source)
    with pytest.raises(SourceError, match="not in the source store") as caught:
        store.verify(source)
    assert caught.value.hint == "ddlce fetch"
