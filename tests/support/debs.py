"""Debian packages made for a test: an ar archive of real tarballs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HardLink:
    """A member that is another name of the file `goal`."""

    goal: str


@dataclass(frozen=True)
class Special:
    """A member that is neither file nor link: a device or a pipe, by tarfile's type."""

    type: bytes


#: What a member may be: bytes of a file, text for a symbolic link's target, or something odd.
Member = bytes | str | HardLink | Special
Members = Mapping[str, Member] | Iterable[tuple[str, Member]]

#: Packages that would reach into `outside`, a folder beside the one that they are unpacked into,
#: and what is said of each.
HOSTILE: dict[str, tuple[Members, str]] = {
    "upwards": ([("../outside/evil", b"x")], "outside its root"),
    "absolute": ([("/outside/evil", b"x")], "outside its root"),
    "a folder upwards": ([("../outside/evil", Special(tarfile.DIRTYPE))], "outside its root"),
    "through a link": ([("way", "../outside"), ("way/evil", b"x")], "way is not a folder"),
    "a folder through a link": (
        [("way", "../outside"), ("way/evil", Special(tarfile.DIRTYPE))],
        "way is not a folder",
    ),
    "a link through a link": ([("way", "../outside"), ("way/evil", "x")], "way is not a folder"),
    "through two links": (
        [("a/up", ".."), ("a/up/way", "../outside"), ("a/up/way/evil", b"x")],
        "a/up is not a folder",
    ),
    "over a link": ([("way", "../outside/evil"), ("way", b"x")], "way is there already"),
    "a folder over a link": (
        [("way", "../outside"), ("way", Special(tarfile.DIRTYPE)), ("way/evil", b"x")],
        "way is there already",
    ),
    "below a file": ([("way", b"x"), ("way/evil", b"x")], "way is not a folder"),
    "another name upwards": ([("evil", HardLink("../outside/kept"))], "outside its root"),
    "another name of a link": (
        [("way", "../outside/kept"), ("evil", HardLink("./way"))],
        "evil is another name of ./way, which is no file",
    ),
    "another name through a link": (
        [("way", "../outside"), ("evil", HardLink("./way/kept"))],
        "way is not a folder",
    ),
    "another name of nothing": ([("evil", HardLink("./gone"))], "which is no file"),
    "a device": ([("evil", Special(tarfile.CHRTYPE))], "evil is a device or a pipe"),
    "a pipe": ([("evil", Special(tarfile.FIFOTYPE))], "evil is a device or a pipe"),
}


def outside_of(folder: Path) -> Path:
    """The folder that `HOSTILE` packages reach for, with one file in it."""
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    return outside


def untouched(outside: Path) -> bool:
    """Whether the folder is as it was made, and nobody has another name of its file."""
    (kept,) = outside.iterdir()
    return kept.read_text() == "kept" and kept.stat().st_nlink == 1


def make_deb(path: Path, files: Members, control: Mapping[str, str] | None = None) -> Path:
    """Write a binary package.

    Args:
        files: name below / → member; pairs, where a name comes twice.
        control: fields of the control file.
    """
    fields = "".join(f"{key}: {value}\n" for key, value in (control or {}).items())
    members = {
        "debian-binary": b"2.0\n",
        "control.tar.xz": _tarball({"control": fields.encode()}),
        "data.tar.xz": _tarball(files),
    }
    with path.open("wb") as out:
        out.write(b"!<arch>\n")
        for name, data in members.items():
            out.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode())
            out.write(data + b"\n" * (len(data) % 2))
    return path


def _tarball(files: Members) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as tar:
        for name, content in files.items() if isinstance(files, Mapping) else files:
            info = tarfile.TarInfo(name if name.startswith("/") else f"./{name}")
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            elif isinstance(content, HardLink):
                info.type, info.linkname = tarfile.LNKTYPE, content.goal
                tar.addfile(info)
            elif isinstance(content, Special):
                info.type, info.mode = content.type, 0o755
                tar.addfile(info)
            else:
                info.size = len(content)
                info.mode = 0o755 if content.startswith((b"#!", b"\x7fELF")) else 0o644
                tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()
