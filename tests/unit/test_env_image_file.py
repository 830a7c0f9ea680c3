"""Tests of an image's place, and of the file that holds it."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest
import zstandard

from ddlce.env.image import check_node_place, node_place
from ddlce.env.imagefile import TIME, ImageContent, write_image
from ddlce.env.records import Record
from ddlce.env.relink import PackagePlan
from ddlce.errors import InputError, SourceError


def plan(folder: Path) -> PackagePlan:
    """A package with a program, a source, a link and a file that holds the prefix."""
    record = folder / "conda-meta" / "tool-1.0-h0_0.json"
    record.parent.mkdir(parents=True)
    record.write_text(
        json.dumps({"name": "tool", "version": "1", "files": [], "paths_data": {"paths": []}})
    )
    for name, mode in (("tool", 0o755), ("source.py", 0o644)):
        (folder / name).write_text(f"{name}\n")
        (folder / name).chmod(mode)
    made = PackagePlan(Record(record))
    made.links += [
        (str(folder / "tool"), "bin/tool", None),
        (str(folder / "source.py"), "lib/source.py", 1_700_000_000 * 10**9 + 5),
    ]
    made.symlinks.append(("tool", "bin/alias"))
    made.own.append((b"/place\n", 0o644, "etc/where"))
    return made


def written(source: Path, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return write_image(ImageContent(source, [plan(source)]), folder, "x").path


def members(image: Path) -> dict[str, tarfile.TarInfo]:
    with image.open("rb") as stream, zstandard.ZstdDecompressor().stream_reader(stream) as packed:
        with tarfile.open(fileobj=io.BytesIO(packed.read())) as tar:
            return {member.name: member for member in tar}


def test_the_same_content_gives_the_same_bytes(tmp_path: Path) -> None:
    first = written(tmp_path / "a", tmp_path / "one")
    os.utime(first, (1, 1))
    second = written(tmp_path / "b", tmp_path / "two")
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()
    sha256 = hashlib.sha256(first.read_bytes()).hexdigest()
    assert first.name == f"x-{sha256[:16]}.tar.zst"


def test_members_have_no_owner_and_only_sources_have_a_time(tmp_path: Path) -> None:
    found = members(written(tmp_path / "a", tmp_path / "out"))
    assert list(found) == [
        *("bin", "conda-meta", "etc", "lib", "bin/alias", "bin/tool"),
        *("conda-meta/tool-1.0-h0_0.json", "etc/where", "lib/source.py"),
    ]
    assert {(member.uid, member.gid, member.uname) for member in found.values()} == {(0, 0, "")}
    assert {m.mtime for name, m in found.items() if name != "lib/source.py"} == {TIME}
    assert found["lib/source.py"].mtime == 1_700_000_000
    modes = {name: found[name].mode for name in ("bin", "bin/tool", "etc/where")}
    assert modes == {"bin": 0o755, "bin/tool": 0o555, "etc/where": 0o444}
    assert found["bin/alias"].linkname == "tool"


def test_a_file_that_is_gone_leaves_nothing_half_written(tmp_path: Path) -> None:
    made = plan(tmp_path / "a")
    (tmp_path / "a" / "tool").unlink()
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(SourceError, match="a/tool cannot be read"):
        write_image(ImageContent(tmp_path / "a", [made]), out, "x")
    assert not list(out.iterdir())


@pytest.mark.parametrize("place", ["/local", "/tmp/ddl-ce-1000", "/scratch/l_1/a.b+c"])
def test_places_that_are_usable(place: str) -> None:
    check_node_place(Path(place))


@pytest.mark.parametrize("place", ["local", "/", "/a b", "/a/../b", "/tmp/$USER", "/dev/shm/x"])
def test_places_that_are_refused(place: str) -> None:
    with pytest.raises(InputError, match=r"^--for "):
        check_node_place(Path(place))


def test_the_place_of_a_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DDLCE_STAGE_PLACE", raising=False)
    assert node_place() == Path(f"/tmp/ddl-ce-{os.getuid()}")
    monkeypatch.setenv("DDLCE_STAGE_PLACE", "/local/ddl-ce")
    assert node_place() == Path("/local/ddl-ce")
