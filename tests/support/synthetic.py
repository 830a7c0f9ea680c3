"""Small real packages, made by rattler-build, for tests of what reads packages."""

from __future__ import annotations

import datetime
from pathlib import Path

from rattler_build import ArchiveType, assemble_package


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
    **more: object,
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
