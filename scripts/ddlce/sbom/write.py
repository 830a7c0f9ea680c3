"""The SBOMs of a release as files, by name."""

from __future__ import annotations

from pathlib import Path

from ddlce.files import write_atomic
from ddlce.model.envlock import EnvLock
from ddlce.sbom.collect import Tree, collect
from ddlce.sbom.cyclonedx import to_cyclonedx
from ddlce.sbom.release import Release
from ddlce.sbom.spdx import to_spdx
from ddlce.settings import Settings


def make_sboms(settings: Settings, lock: EnvLock, channel: Path) -> dict[str, str]:
    """The two SBOMs of a lock's release: `NAME.cdx.json` and `NAME.spdx.json` → text.

    Args:
        settings: the tree that it was built from.

    Raises:
        InputError: there is no tree.
        SourceError: a package is missing, is not the locked one, or is not of this tree.
        WorkError: a text is not valid.
    """
    components = collect(lock, channel, Tree.of(settings))
    release = Release.of(lock)
    return {
        f"{release.name}.cdx.json": to_cyclonedx(release, components),
        f"{release.name}.spdx.json": to_spdx(release, components),
    }


def write_sboms(sboms: dict[str, str], folder: Path) -> list[Path]:
    """Write them into a folder; returns the files.

    Raises:
        MachineError: the folder cannot be written.
    """
    for name, text in sboms.items():
        write_atomic(folder / name, text)
    return [folder / name for name in sboms]
