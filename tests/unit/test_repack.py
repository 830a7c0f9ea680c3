"""Repacking: canonical bytes out of what the engine packed."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import zstandard

from ddlce.builder.repack import EPOCH, canonical_placeholder, repack
from ddlce.errors import WorkError

NAME = "toy-1-h0_0"


def tar_zst(files: Mapping[str, bytes | tuple[str, str]], mtime: int) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.mtime, info.uid, info.mode = mtime, 1234, 0o700
            if isinstance(content, tuple):
                info.type = getattr(tarfile, content[0])
                info.linkname = content[1]
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return zstandard.ZstdCompressor().compress(raw.getvalue())


def engine_package(folder: Path, prefix: str, mtime: int, extra: Any = None) -> Path:
    """A .conda file as rattler-build packs it: wall clock, owner, the folder of the build."""
    text = f"#!{prefix}/bin/sh\n".encode()
    paths = {
        "paths": [
            {
                "_path": "bin/toy",
                "path_type": "hardlink",
                "file_mode": "text",
                "prefix_placeholder": prefix,
                "sha256": hashlib.sha256(text).hexdigest(),
                "size_in_bytes": len(text),
            },
            # Of the file that the link names, as it was before the engine changed its RPATH.
            {
                "_path": "bin/link",
                "path_type": "softlink",
                "sha256": hashlib.sha256(prefix.encode()).hexdigest(),
                "size_in_bytes": 3,
            },
        ],
        "paths_version": 1,
    }
    files: dict[str, Any] = {"bin/toy": text, "bin/link": ("SYMTYPE", "toy")} | (extra or {})
    depends = ["libgcc >=12", "__glibc >=2.36,<3.0.a0", "python"]
    if mtime % 2:
        files = dict(reversed(files.items()))
        depends.reverse()
    info = {
        "info/paths.json": json.dumps(paths).encode(),
        "info/index.json": json.dumps(
            {"name": "toy", "timestamp": mtime, "depends": depends}
        ).encode(),
        "info/about.json": json.dumps({"channels": [prefix], "license": "MIT"}).encode(),
    }
    folder.mkdir(parents=True)
    path = folder / f"{NAME}.conda"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr(f"pkg-{NAME}.tar.zst", tar_zst(files, mtime))
        archive.writestr(f"info-{NAME}.tar.zst", tar_zst(info, mtime))
    return path


def unpack(package: Path) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    found = {}
    with zipfile.ZipFile(package) as archive:
        for part in ("pkg", "info"):
            data = zstandard.ZstdDecompressor().stream_reader(
                archive.read(f"{part}-{NAME}.tar.zst")
            )
            with tarfile.open(fileobj=io.BytesIO(data.read())) as tar:
                for info in tar:
                    stream = tar.extractfile(info) if info.isfile() else None
                    found[info.name] = (info, stream.read() if stream else b"")
    return found


def test_same_bytes_whatever_the_folder_time_and_order(tmp_path: Path) -> None:
    sums = set()
    for folder, prefix, mtime in (("a", "/one/place" + "x" * 90, 10), ("b", "/two" + "y" * 96, 21)):
        target = tmp_path / folder / "out.conda"
        source = engine_package(tmp_path / folder / "raw", prefix, mtime)
        repack(source, target.with_name(f"{NAME}.conda"), {"digest": "d"})
        sums.add(target.with_name(f"{NAME}.conda").read_bytes())
    assert len(sums) == 1


def test_placeholder_times_owner_and_metadata_are_canonical(tmp_path: Path) -> None:
    prefix = "/build/here" + "x" * 89
    target = tmp_path / f"{NAME}.conda"
    repack(engine_package(tmp_path / "raw", prefix, 7), target, {"digest": "abc"})
    files = unpack(target)
    link, entry = json.loads(files["info/paths.json"][1])["paths"]
    canonical = canonical_placeholder(len(prefix))
    assert len(canonical) == len(prefix)
    assert entry["prefix_placeholder"] == canonical
    assert files["bin/toy"][1] == f"#!{canonical}/bin/sh\n".encode()
    assert entry["sha256"] == hashlib.sha256(files["bin/toy"][1]).hexdigest()
    assert files["bin/link"][0].linkname == "toy"
    assert link["sha256"] == entry["sha256"]
    assert {info.mtime for info, _ in files.values()} == {EPOCH}
    assert {info.uid for info, _ in files.values()} == {0}
    assert json.loads(files["info/index.json"][1])["timestamp"] == EPOCH * 1000
    assert json.loads(files["info/ddl-ce.json"][1]) == {"digest": "abc"}
    assert "channels" not in json.loads(files["info/about.json"][1])


def test_the_container_needs_no_zip64_records(tmp_path: Path) -> None:
    """Releases of Python 3.11 write these differently: the bytes would depend on the machine."""
    target = tmp_path / f"{NAME}.conda"
    repack(engine_package(tmp_path / "raw", "/p" * 50, 2), target, {})
    with zipfile.ZipFile(target) as archive:
        assert archive.testzip() is None
        assert {entry.create_version for entry in archive.infolist()} == {20}
    # The first record's extra field would hold the sizes.
    assert target.read_bytes()[28:30] == b"\0\0"


def test_hard_links_inside_a_package_are_refused_by_name(tmp_path: Path) -> None:
    raw = engine_package(tmp_path / "raw", "/p" * 50, 2, {"bin/z": ("LNKTYPE", "bin/toy")})
    with pytest.raises(WorkError, match=r"bin/z: packed as a hard link"):
        repack(raw, tmp_path / f"{NAME}.conda", {})
