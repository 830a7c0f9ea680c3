"""What a Debian package says of itself, and what its compiled files need and offer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from ddlce.errors import SourceError
from ddlce.sources.debfile import unpack_deb
from ddlce.sources.debmetadata import read_deb
from support.debs import HOSTILE, HardLink, Member, make_deb, outside_of, untouched

DIST = "usr/lib/python3/dist-packages"
CONTROL = {
    "Package": "python3-thing",
    "Homepage": "https://example.org/thing",
    "Description": "a thing\n More about it.",
}


def library(folder: Path, name: str, *options: str) -> bytes:
    """A shared library, compiled here."""
    source = folder / "x.c"
    source.write_text("#include <stdio.h>\nint x(void) { return puts(__FILE__); }")
    command = ["gcc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", name, str(source), *options]
    subprocess.run(command, cwd=folder, check=True)
    return (folder / name).read_bytes()


def test_libraries_offered_and_needed(tmp_path: Path) -> None:
    inner = library(tmp_path, "libinner.so", "-Wl,-soname,libinner.so")
    outer = library(tmp_path, "libx.so.1", "-Wl,-soname,libx.so.1", "-lgcc_s", "libinner.so")
    files: dict[str, bytes | str] = {
        "usr/lib/m-linux-gnu/libx.so.1": outer,
        "usr/lib/m-linux-gnu/libx.so": "libx.so.1",
        f"{DIST}/thing/libinner.so": inner,
    }
    found = read_deb(make_deb(tmp_path / "x.deb", files, CONTROL))
    assert found.sonames == ["libx.so.1"]
    assert found.needed == ["libgcc_s.so.1"]  # not glibc, nor what is inside
    assert found.glibc.startswith("2.")
    assert (found.summary, found.homepage) == ("a thing", "https://example.org/thing")
    assert found.python is None


@pytest.mark.parametrize(
    ("info", "name"), [("thing-2.dist-info", "METADATA"), ("thing-2.egg-info", "PKG-INFO")]
)
def test_python_metadata(tmp_path: Path, info: str, name: str) -> None:
    text = (
        "Metadata-Version: 2.1\nName: Thing\nVersion: 2\nRequires-Python: >=3.9\n"
        "Requires-Dist: numpy>=2\nRequires-Dist: more; extra == 'more'\n"
    )
    files: dict[str, bytes | str] = {
        f"{DIST}/{info}/{name}": text.encode(),
        f"{DIST}/thing/__init__.py": b"",
        f"{DIST}/single.py": b"",
        "usr/share/x/other.py": b"",
    }
    python = read_deb(make_deb(tmp_path / "x.deb", files, CONTROL)).python
    assert python
    assert (python.name, python.version) == ("Thing", "2")
    assert python.requires_dist == ["numpy>=2"]
    assert python.imports == ["single", "thing"]


def test_a_bad_requirement_names_the_file(tmp_path: Path) -> None:
    text = b"Metadata-Version: 2.1\nName: Thing\nVersion: 2\nRequires-Dist: !!\n"
    deb = make_deb(tmp_path / "bad.deb", {f"{DIST}/thing-2.dist-info/METADATA": text}, CONTROL)
    with pytest.raises(SourceError, match=r"bad\.deb: its Python metadata is unreadable"):
        read_deb(deb)


def test_what_is_no_package_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.deb").write_bytes(b"hello")
    with pytest.raises(SourceError, match="not a Debian package"):
        read_deb(tmp_path / "x.deb")


@pytest.mark.parametrize("kind", HOSTILE)
def test_nothing_is_written_outside(tmp_path: Path, kind: str) -> None:
    members, said = HOSTILE[kind]
    outside = outside_of(tmp_path / "root")
    deb = make_deb(tmp_path / "x.deb", members)
    with pytest.raises(SourceError, match=f"x.deb: .*{said}"):
        unpack_deb(deb, tmp_path / "root")
    assert untouched(outside)


def test_files_links_and_other_names_are_unpacked(tmp_path: Path) -> None:
    members: list[tuple[str, Member]] = [
        ("a/x", b"#!x"),
        ("a/y", HardLink("./a/x")),
        ("b", "/a/x"),
        ("c", "a"),
    ]
    root = tmp_path / "root"
    unpack_deb(make_deb(tmp_path / "x.deb", members), root)
    assert (root / "a/y").read_bytes() == b"#!x"
    assert (root / "a/x").stat().st_mode & 0o777 == 0o755
    assert ((root / "b").readlink(), (root / "c").readlink()) == (Path("/a/x"), Path("a"))
