"""Debian packages made for a test: an ar archive of real tarballs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path


def make_deb(
    path: Path, files: Mapping[str, bytes | str], control: Mapping[str, str] | None = None
) -> Path:
    """Write a binary package.

    Args:
        path: the file to write.
        files: name below / → bytes of a file, or text for a symbolic link's target.
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


def _tarball(files: Mapping[str, bytes | str]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:xz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(f"./{name}")
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                info.mode = 0o755 if content.startswith((b"#!", b"\x7fELF")) else 0o644
                tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()
