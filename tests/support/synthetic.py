"""Small real packages, made by rattler-build, for tests of what reads packages."""

from __future__ import annotations

import datetime
import io
import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from conda_package_streaming.create import conda_builder
from conda_package_streaming.package_streaming import stream_conda_component
from rattler_build import ArchiveType, assemble_package


def compile_c(target: Path, source: str, *flags: str, compiler: str = "gcc") -> None:
    """Compile a program or library, with the same bytes each time; makes its folder."""
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        [compiler, "-x", "c", "-", "-Wl,--build-id=none", "-o", target, *flags],
        input=source.encode(),
        check=True,
        capture_output=True,
        cwd=target.parent,
    )


def make_package(
    subdir_folder: Path,
    files: Path,
    name: str,
    version: str = "1.0",
    build: str = "h0_0",
    *,
    build_number: int = 0,
    depends: tuple[str, ...] = (),
    constrains: tuple[str, ...] = (),
    license_text: str | None = "Do what you like.\n",
    summary: str = "A small package",
    homepage: str = "https://example.org",
    **more: Any,
) -> Path:
    """Pack the folder `files` into `subdir_folder` (its name is the platform)."""
    subdir = subdir_folder.name
    licenses = []
    if license_text is not None:
        text = files.parent / f"LICENSE-{name}"
        text.write_text(license_text)
        licenses = [text]
    subdir_folder.mkdir(parents=True, exist_ok=True)
    made = assemble_package(
        name=name,
        version=version,
        target_platform=subdir,
        build_string=build,
        build_number=build_number,
        output_dir=subdir_folder,
        files_dir=files,
        depends=list(depends),
        constrains=list(constrains),
        license="MIT",
        license_files=licenses,
        summary=summary,
        homepage=homepage,
        archive_type=ArchiveType.Conda,
        noarch="generic" if subdir == "noarch" else None,
        timestamp=datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
        **more,
    )
    return Path(made.path)


def rewrite(
    package: Path,
    info: dict[str, object] | None = None,
    payload: dict[str, bytes | None] | None = None,
    modes: dict[str, int] | None = None,
) -> Path:
    """Change a package in place, as nothing that packs properly would.

    Args:
        info: JSON contents of files in info/, by name; merged into what is there.
        payload: bytes of files in the prefix, by path; None drops the file. paths.json stays.
        modes: permission bits, by path.
    """
    info, payload = info or {}, payload or {}
    members: dict[str, list[tuple[tarfile.TarInfo, bytes | None]]] = {"info": [], "pkg": []}
    for component, found in members.items():
        with package.open("rb") as stream:
            for archive, member in stream_conda_component(package.name, stream, component):
                data = archive.extractfile(member) if member.isfile() else None
                found.append((member, data.read() if data else None))
    for name, change in info.items():
        old = {m.name: data for m, data in members["info"]}.get(f"info/{name}")
        merged = json.loads(old or b"{}") | change if isinstance(change, dict) else change
        members["info"] = [(m, d) for m, d in members["info"] if m.name != f"info/{name}"]
        members["info"].append((tarfile.TarInfo(f"info/{name}"), json.dumps(merged).encode()))
    for path, content in payload.items():
        kept = [(m, d) for m, d in members["pkg"] if m.name != path]
        members["pkg"] = [*kept, *([(tarfile.TarInfo(path), content)] if content else [])]
    package.unlink()
    with conda_builder(package.name.removesuffix(".conda"), str(package.parent)) as tar:
        for member, data in (*members["info"], *members["pkg"]):
            member.size = len(data) if data is not None else 0
            member.mode = (modes or {}).get(member.name, member.mode)
            tar.addfile(member, io.BytesIO(data) if data is not None else None)
    return package
