"""Tests of what a clone links, what it writes anew, and what it leaves to rattler."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ddlce.env.records import Record, read_records
from ddlce.env.relink import PackagePlan, Unusual, link_files, plan_links
from ddlce.env.sharing import Sharing
from ddlce.errors import SourceError

OLD = "/opt/" + "placehold_" * 20
SITE = "lib/python3.11/site-packages"
SCRIPT = "# -*- coding: utf-8 -*-\nfrom tool import main\n"


class Source:
    """A prefix with packages, and the cache that they came from.

    Attributes:
        prefix: the environment; only what is taken from there is there.
        pkgs: the cache.
    """

    def __init__(self, folder: Path) -> None:
        self.prefix = folder / "source"
        self.pkgs = folder / "pkgs"
        (self.prefix / "conda-meta").mkdir(parents=True)
        self.package("python", {}, version="3.11.2")

    def package(
        self, name: str, entries: dict[str, dict[str, Any]], version: str = "1.0", **fields: Any
    ) -> Path:
        """Add a package; returns the folder for its files."""
        stem = f"{name}-{version}-h0_0"
        unpacked = self.pkgs / stem
        (unpacked / "info").mkdir(parents=True)
        digest = hashlib.sha256(stem.encode())
        (self.pkgs / f"{stem}.lock").write_bytes(bytes(8) + digest.digest())
        paths = [{"_path": p, "path_type": "hardlink", **e} for p, e in entries.items()]
        record = {
            "name": name,
            "version": version,
            "sha256": digest.hexdigest(),
            "files": list(entries),
            "paths_data": {"paths_version": 1, "paths": paths},
            **fields,
        }
        (self.prefix / "conda-meta" / f"{stem}.json").write_text(json.dumps(record))
        return unpacked

    def records(self) -> list[Record]:
        return read_records(self.prefix)

    def plan(self, target: str | Path = "/t") -> list[PackagePlan]:
        return plan_links(self.prefix, Path(target), self.records(), self.pkgs)

    def clone(self, target: Path) -> tuple[int, int]:
        target.mkdir()
        sharing = Sharing(reflinks=False)
        link_files(self.plan(target), target, sharing)
        return sharing.linked, sharing.copied


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def put(path: Path, content: str | bytes, mode: int = 0o444) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return path


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def entry_in(prefix: Path, name: str) -> dict[str, Any]:
    """The only entry of `name` in the prefix's records."""
    found = [e for r in read_records(prefix) for e in r.entries if e["_path"] == name]
    assert len(found) == 1
    return found[0]


def add_script(source: Source, content: str) -> None:
    script = put(source.prefix / "bin" / "tool", content, 0o555)
    entry = {"path_type": "unix_python_entry_point", "sha256": sha256(script)}
    source.package("tool", {"bin/tool": entry}, noarch="python")


def test_files_are_links_and_folders_are_made(source: Source, tmp_path: Path) -> None:
    unpacked = source.package("a", {"share/a/b/c.txt": {}, "top": {}})
    deep = put(unpacked / "share/a/b/c.txt", "c")
    top = put(unpacked / "top", "t")
    target = tmp_path / "t"
    assert source.clone(target) == (2, 2)  # the records are its own
    assert (target / "share/a/b/c.txt").samefile(deep)
    assert (target / "top").samefile(top)
    assert not (target / "info").exists()
    same = "conda-meta/a-1.0-h0_0.json"
    assert (target / same).read_bytes() == (source.prefix / same).read_bytes()
    assert not (target / same).samefile(source.prefix / same)


def test_a_noarch_package_goes_where_python_looks(source: Source, tmp_path: Path) -> None:
    names = [f"{SITE}/m/__init__.py", "bin/script", "bin/plain", "etc/m.conf"]
    unpacked = source.package("m", {name: {} for name in names}, noarch="python")
    packaged = ["site-packages/m/__init__.py", "python-scripts/script", "bin/plain", "etc/m.conf"]
    for name in packaged:
        put(unpacked / name, name)
    source.clone(tmp_path / "t")
    assert [(tmp_path / "t" / name).read_text() for name in names] == packaged


def test_the_prefix_is_replaced_in_text_and_recorded(source: Source, tmp_path: Path) -> None:
    fields = {"prefix_placeholder": OLD, "file_mode": "text", "sha256": "x", "size_in_bytes": 1}
    unpacked = source.package("a", {"etc/a.conf": fields})
    original = put(unpacked / "etc/a.conf", f"one={OLD}/x\ntwo={OLD}\n")
    target = tmp_path / "t"
    assert source.clone(target) == (0, 3)
    made = target / "etc/a.conf"
    assert made.read_text() == f"one={target}/x\ntwo={target}\n"
    assert made.stat().st_mode & 0o777 == 0o644
    assert OLD in original.read_text()
    entry = entry_in(target, "etc/a.conf")
    assert entry["sha256_in_prefix"] == sha256(made)
    assert entry["size_in_bytes"] == made.stat().st_size
    assert entry["sha256"] == "x"
    assert "sha256_in_prefix" not in entry_in(source.prefix, "etc/a.conf")


@pytest.mark.parametrize("end", [b"\0tail\0", b"\0", b""])
def test_strings_in_a_binary_keep_their_places(source: Source, tmp_path: Path, end: bytes) -> None:
    old = OLD.encode()
    fields = {"prefix_placeholder": OLD, "file_mode": "binary"}
    unpacked = source.package("a", {"lib/a.so": fields})
    put(unpacked / "lib/a.so", b"\x7fELF\0" + old + b"/lib:" + old + b"/lib64" + end, 0o555)
    target = tmp_path / "t"
    source.clone(target)
    new = os.fsencode(target)
    padding = bytes(2 * (len(old) - len(new)))
    made = target / "lib/a.so"
    assert made.read_bytes() == b"\x7fELF\0" + new + b"/lib:" + new + b"/lib64" + padding + end
    assert made.stat().st_mode & 0o777 == 0o755


def test_scripts_name_the_clones_python(source: Source, tmp_path: Path) -> None:
    add_script(source, f"#!{source.prefix}/bin/python3.11\n{SCRIPT}")
    target = tmp_path / "t"
    source.clone(target)
    made = target / "bin" / "tool"
    assert made.read_text() == f"#!{target}/bin/python3.11\n{SCRIPT}"
    assert made.stat().st_mode & 0o777 == 0o755
    assert entry_in(target, "bin/tool")["sha256"] == sha256(made)


def test_bytecode_is_the_sources_but_not_what_holds_its_prefix(
    source: Source, tmp_path: Path
) -> None:
    cache = f"{SITE}/__pycache__"
    unpacked = source.package(
        "a",
        {
            f"{SITE}/plain.py": {},
            f"{SITE}/placed.py": {"prefix_placeholder": OLD, "file_mode": "text"},
            f"{SITE}/removed.py": {},
            **{
                f"{cache}/{name}.cpython-311.pyc": {"path_type": "pyc_file"}
                for name in ("plain", "placed", "removed")
            },
        },
    )
    for name in ("plain", "placed", "removed"):
        put(unpacked / SITE / f"{name}.py", OLD)
    compiled = put(source.prefix / cache / "plain.cpython-311.pyc", "code")
    put(source.prefix / cache / "placed.cpython-311.pyc", "code")
    target = tmp_path / "t"
    source.clone(target)
    assert [p.name for p in (target / cache).iterdir()] == ["plain.cpython-311.pyc"]
    assert (target / cache / "plain.cpython-311.pyc").samefile(compiled)
    listed = json.loads((target / "conda-meta" / "a-1.0-h0_0.json").read_text())["files"]
    assert [name for name in listed if name.endswith(".pyc")] == [f"{cache}/{compiled.name}"]


def test_links_are_made_again(source: Source, tmp_path: Path) -> None:
    unpacked = source.package("a", {"lib/a.so": {"path_type": "softlink"}})
    (unpacked / "lib").mkdir()
    (unpacked / "lib/a.so").symlink_to("a.so.1")
    source.clone(tmp_path / "t")
    assert (tmp_path / "t/lib/a.so").readlink() == Path("a.so.1")


def test_what_cannot_be_linked_is_copied(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    unpacked = source.package("a", {"bin/a": {}})
    put(unpacked / "bin/a", "run", 0o555)
    monkeypatch.setattr(os, "link", refuse)
    assert source.clone(tmp_path / "t") == (0, 3)
    made = tmp_path / "t/bin/a"
    assert made.read_text() == "run"
    assert made.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_umask_changes_nothing(
    source: Source, tmp_path: Path, umask: Callable[[int], int], mask: int
) -> None:
    put(source.package("a", {"share/a/x": {}}) / "share/a/x", "x")
    umask(mask)
    target = tmp_path / "t"
    source.clone(target)
    for name in ("", "share", "share/a", "conda-meta"):
        assert (target / name).stat().st_mode & 0o777 == 0o755, name
    for file in (target / "conda-meta").iterdir():
        assert file.stat().st_mode & 0o777 == 0o644


def test_a_file_that_is_gone_from_the_cache_is_named(source: Source, tmp_path: Path) -> None:
    unpacked = source.package("a", {"x": {}})
    with pytest.raises(SourceError, match=f"{unpacked}/x is not there"):
        source.clone(tmp_path / "t")


def no_note(source: Source) -> None:
    source.package("a", {})
    (source.pkgs / "a-1.0-h0_0.lock").unlink()


def another_package(source: Source) -> None:
    source.package("a", {})
    (source.pkgs / "a-1.0-h0_0.lock").write_bytes(bytes(40))


def one_file_twice(source: Source) -> None:
    for name in ("a", "b"):
        put(source.package(name, {"x": {}}) / "x", name)


def unknown_field(source: Source) -> None:
    put(source.package("a", {"x": {"original_path": "y"}}) / "x", "x")


def unknown_kind(source: Source) -> None:
    source.package("a", {"x": {"path_type": "directory"}})


def absolute_link(source: Source) -> None:
    unpacked = source.package("a", {"x": {"path_type": "softlink"}})
    (unpacked / "x").symlink_to("/etc/passwd")


def changed_script(source: Source) -> None:
    add_script(source, f"#!{source.prefix}/bin/python3.11\n{SCRIPT}")
    put(source.prefix / "bin" / "tool", "#!/usr/bin/python3\n", 0o755)


def script_through_sh(source: Source) -> None:
    add_script(source, f"#!/bin/sh\n'''exec' \"{source.prefix}/bin/python3.11\"\n{SCRIPT}")


def gone_placed_file(source: Source) -> None:
    source.package("a", {"x": {"prefix_placeholder": OLD, "file_mode": "text"}})


@pytest.mark.parametrize(
    "change",
    [
        no_note,
        another_package,
        one_file_twice,
        unknown_field,
        unknown_kind,
        absolute_link,
        changed_script,
        script_through_sh,
        gone_placed_file,
    ],
    ids=lambda change: change.__name__,
)
def test_the_unusual_is_left_to_rattler(source: Source, change: Callable[[Source], None]) -> None:
    source.plan()
    change(source)
    with pytest.raises(Unusual):
        source.plan()


@pytest.mark.parametrize(
    ("target", "usual"),
    [("/" + "x" * 113, True), ("/" + "x" * 114, False), ("/a b", False)],
)
def test_prefixes_that_a_script_cannot_name(source: Source, target: str, usual: bool) -> None:
    content = f"#!{OLD}/bin/sh -eu\necho {OLD}\n"
    fields = {"prefix_placeholder": OLD, "file_mode": "text"}
    put(source.package("a", {"bin/a": fields}) / "bin/a", content)
    if usual:
        assert source.plan(target)[0].own[0][0].startswith(f"#!{target}/bin/sh -eu\n".encode())
    else:
        with pytest.raises(Unusual):
            source.plan(target)


def test_prefixes_that_a_binary_cannot_hold(source: Source) -> None:
    fields = {"prefix_placeholder": OLD, "file_mode": "binary"}
    put(source.package("a", {"lib/a.so": fields}) / "lib/a.so", f"{OLD}\0")
    source.plan("/" + "x" * (len(OLD) - 1))
    with pytest.raises(Unusual):
        source.plan("/" + "x" * len(OLD))
