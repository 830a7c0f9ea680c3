"""A small real Debian mirror on this machine's disk, for the machine's own apt."""

from __future__ import annotations

import hashlib
from pathlib import Path


class Mirror:
    """A flat apt repository."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.sources: list[str] = []
        self.packages: list[str] = []

    def add_source(self, name: str, version: str, within: str = ".", **files: bytes) -> None:
        """A source package; keyword `a__orig_tar` makes the file `a_orig.tar`."""
        folder = self.folder / within
        folder.mkdir(parents=True, exist_ok=True)
        made = {f"{name}_{version}.dsc": f"Source: {name}\n".encode()}
        made |= {f"{name}_{version}.{k.replace('_', '.')}": v for k, v in files.items()}
        for file, data in made.items():
            (folder / file).write_bytes(data)
        lines = {f: f"{digest(d)} {len(d)} {f}" for f, d in made.items()}
        md5 = "\n".join(f" {hashlib.md5(d).hexdigest()} {len(d)} {f}" for f, d in made.items())
        self.sources.append(
            f"Package: {name}\nBinary: {name}\nVersion: {version}\nArchitecture: any\n"
            f"Directory: {within}\nFiles:\n{md5}\nChecksums-Sha256:\n"
            + "".join(f" {line}\n" for line in lines.values())
        )

    def add_binary(self, name: str, version: str, data: bytes) -> None:
        """A binary package; apt does not look inside."""
        file = f"{name}_{version}_amd64.deb"
        (self.folder / file).write_bytes(data)
        self.packages.append(
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nFilename: ./{file}\n"
            f"Size: {len(data)}\nSHA256: {digest(data)}\nDescription: test\n"
        )

    def publish(self, suite: str = "") -> None:
        """Write the indices, as a mirror does: of a suite with one area, `main`, or at the top."""
        top = self.folder / "dists" / suite if suite else self.folder
        places = ("main/source/", "main/binary-amd64/") if suite else ("", "")
        release = (
            f"Origin: test\nSuite: {suite or './'}\nCodename: {suite or './'}\n"
            "Architectures: amd64\nComponents: main\nSHA256:\n"
        )
        for place, name, records in zip(
            places, ("Sources", "Packages"), (self.sources, self.packages), strict=True
        ):
            data = "\n".join(records).encode()
            path = top / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            release += f" {digest(data)} {len(data)} {place}{name}\n"
        (top / "Release").write_text(release)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
