"""The source store: right bytes are kept, wrong ones are found."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

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


def test_a_file_that_others_own_is_copied_while_it_is_hashed(
    tmp_path: Path, source: Source
) -> None:
    """A link would be to a file that its owner can change after it was checked."""
    file = tmp_path / "theirs"
    file.write_bytes(DATA)
    for mode, linked in ((0o644, True), (0o664, False), (0o646, False)):
        file.chmod(mode)
        store = SourceStore(tmp_path / f"store-{mode:o}")
        taken = store.add(source, file)
        assert taken.samefile(file) == linked
        assert taken.stat().st_mode & 0o022 == 0


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to give a file away")
def test_a_file_of_another_user_is_not_linked(tmp_path: Path, source: Source) -> None:
    file = tmp_path / "theirs"
    file.write_bytes(DATA)
    os.chown(file, 65534, 65534)
    assert not SourceStore(tmp_path / "store").add(source, file).samefile(file)


def test_a_file_that_is_swapped_after_it_was_hashed_is_not_taken(
    tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "theirs"
    file.write_bytes(DATA)
    real = hashlib.file_digest

    def hash_and_swap(*arguments: Any) -> Any:
        digest = real(*arguments)
        other = tmp_path / "evil"
        other.write_bytes(DATA.replace(b"some", b"evil"))
        other.replace(file)
        return digest

    monkeypatch.setattr(hashlib, "file_digest", hash_and_swap)
    for mode in (0o644, 0o666):
        file.write_bytes(DATA)
        file.chmod(mode)
        taken = SourceStore(tmp_path / f"store-{mode:o}").add(source, file)
        assert taken.read_bytes() == DATA


@pytest.mark.parametrize("absolute", [True, False])
def test_a_link_is_taken_as_the_file_that_it_names(
    tmp_path: Path, source: Source, absolute: bool
) -> None:
    """A store that has links depends on files outside."""
    file = tmp_path / "outside"
    file.write_bytes(DATA)
    carried = SourceStore(tmp_path / "carried").path(source)
    carried.parent.mkdir(parents=True)
    carried.symlink_to(file if absolute else os.path.relpath(file, carried.parent))
    store = SourceStore(tmp_path / "store")
    taken = store.add(source, carried)
    assert not taken.is_symlink()
    file.unlink()
    store.verify(source)
