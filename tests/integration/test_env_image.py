"""`ddlce env image`: a release as one file, with the paths of a folder on the nodes."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.minienv import NOBODY, Site, can_be_nobody, can_mount, everything, small_disk
from support.run import run


def make(user: Site, place: Path, *words: str | Path) -> dict[str, Any]:
    """What `ddlce env image --json` says."""
    said: dict[str, Any] = json.loads(
        user.ok("env", "image", "mini", "--for", place, "--json", *words)
    )
    return said


def unpack(said: dict[str, Any]) -> Path:
    prefix = Path(said["place"], said["name"])
    prefix.mkdir(parents=True)
    subprocess.run(["tar", "--zstd", "-xpf", said["path"], "-C", prefix], check=True)
    return prefix


def test_an_image_runs_from_its_place_and_knows_no_other(user: Site, tmp_path: Path) -> None:
    said = make(user, tmp_path / "node", "--out", tmp_path / "images")
    prefix = unpack(said)
    where = run([prefix / "bin" / "mini-where"])
    assert where.stdout == f"{prefix}/share\none\n"
    assert user.python(prefix, "import mini_prefix as m; print(m.PREFIX)") == str(prefix)
    known = {".condarc", "conda-meta/ddl-ce.origin", "conda-meta/history"}
    source = os.fsencode(user.current)
    for path in everything(prefix):
        name = str(path.relative_to(prefix))
        if path.is_file() and path.suffix != ".pyc" and name not in known:
            assert source not in path.read_bytes(), path
    names = {str(p.relative_to(user.current)) for p in everything(user.current)}
    unpacked = {str(p.relative_to(prefix)) for p in everything(prefix)}
    assert {n for n in names - unpacked if "__pycache__/mini_prefix" not in n} == set()
    assert said["files"] == len(unpacked - {n for n in unpacked if "__pycache__/mini_prefix" in n})


def test_bytecode_is_fresh_in_the_image(user: Site, tmp_path: Path) -> None:
    prefix = unpack(make(user, tmp_path / "node", "--out", tmp_path / "images"))
    decoder = prefix / "lib/python3.11/json/__pycache__/decoder.cpython-311.pyc"
    before = decoder.stat()
    user.python(prefix, "import json.decoder")
    assert decoder.stat().st_ino == before.st_ino


def test_a_second_call_finds_the_first_ones_image(user: Site, tmp_path: Path) -> None:
    first = make(user, tmp_path / "node", "--out", tmp_path / "images")
    before = Path(first["path"]).stat()
    second = make(user, tmp_path / "node", "--out", tmp_path / "images")
    assert (first["made"], second["made"]) == (True, False)
    assert Path(second["path"]).stat() == before


def test_an_image_is_the_same_wherever_it_is_made(user: Site, tmp_path: Path) -> None:
    one = make(user, tmp_path / "node", "--out", tmp_path / "one")
    two = make(user, tmp_path / "node", "--out", tmp_path / "two")
    assert one["made"]
    assert two["made"]
    assert Path(one["path"]).read_bytes() == Path(two["path"]).read_bytes()
    assert one["sha256"] == hashlib.sha256(Path(one["path"]).read_bytes()).hexdigest()
    elsewhere = make(user, tmp_path / "other", "--out", tmp_path / "one")
    assert elsewhere["name"] != one["name"]


def test_an_image_that_was_cut_short_is_made_again(user: Site, tmp_path: Path) -> None:
    path = Path(make(user, tmp_path / "node", "--out", tmp_path / "images")["path"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert make(user, tmp_path / "node", "--out", tmp_path / "images")["made"]
    assert path.read_bytes() == whole


def test_wrong_words_are_refused(user: Site, tmp_path: Path) -> None:
    assert "--for here: not a usable path" in user.fails(2, "env", "image", "mini", "--for", "here")
    assert "there is no environment nine" in user.fails(2, "env", "image", "nine")
    user.ok("env", "clone", "mine")
    said = user.fails(2, "env", "image", "mine", "--out", tmp_path / "images")
    assert "mine is a clone, which may change" in said
    far = "/" + "/".join(["long"] * 50)
    assert "characters" in user.fails(2, "env", "image", "mini", "--for", far)
    assert not (tmp_path / "images").exists()


@pytest.mark.skipif(not can_mount(Path("/tmp/ddlce-mount-probe")), reason="needs mounts")
def test_a_full_disk_leaves_no_half_image(user: Site, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", 1) as disk:
        out = disk / "images"
        said = user.fails(3, "env", "image", "mini", "--for", "/local/x", "--out", out)
        assert str(out) in said
        assert [p.name for p in everything(out)] == [".lock"]


@pytest.mark.skipif(not can_be_nobody(), reason="needs another user")
def test_a_user_may_image_the_sites_release(user: Site, tmp_path: Path) -> None:
    out = tmp_path / "theirs"
    out.mkdir()
    os.chown(out, NOBODY, NOBODY)
    for folder in (tmp_path, *tmp_path.parents[:3], user.folder, user.cache.parent):
        folder.chmod(folder.stat().st_mode | 0o055)
    user.cache.mkdir(exist_ok=True)
    os.chown(user.cache, NOBODY, NOBODY)
    words = ("env", "image", str(user.current), "--for", "/local/x", "--out", out)
    user.ok(*words, user=NOBODY)
    images = [p for p in out.iterdir() if p.suffix == ".zst"]
    assert [p.stat().st_uid for p in images] == [NOBODY]
