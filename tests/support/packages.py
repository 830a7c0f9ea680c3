"""The contents of a `.conda` file."""

from __future__ import annotations

from pathlib import Path

from conda_package_streaming.package_streaming import stream_conda_component


def package_files(package: Path) -> dict[str, bytes]:
    """Path → bytes of all files, those of info/ included; a link's bytes are where it leads."""
    found = {}
    for part in ("pkg", "info"):
        with package.open("rb") as stream:
            for archive, member in stream_conda_component(package.name, stream, part):
                data = archive.extractfile(member) if member.isfile() else None
                found[member.name] = data.read() if data else member.linkname.encode()
    return found
