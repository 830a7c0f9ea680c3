"""A small release with ddl, from the built channel, and its images: for tests of staging."""

from __future__ import annotations

import json
from pathlib import Path

from ddlce.settings import load_settings
from support.minienv import Site

MANIFEST = """\
name: stage
release: "2026.11"
summary: ddl, and what it needs.
platforms:
  linux-64:
    glibc: "2.28"
specs:
"""


def install_small_release(folder: Path, specs: tuple[str, ...] = ("ddl",)) -> Site:
    """A site of its own with the release `stage`, of the channel that `make` has built.

    Args:
        specs: the packages that it has, beside their dependencies.
    """
    site = Site(folder, str(load_settings().channel))
    listed = "".join(f"  - {spec}\n" for spec in specs)
    (site.repo / "envs" / "stage.yaml").write_text(MANIFEST + listed)
    site.ok("lock", "stage")
    site.ok("env", "create", "stage")
    return site


def prefix_of(site: Site) -> Path:
    """The release's prefix."""
    return (site.root / "envs" / "stage" / "current").resolve()


def image_for(site: Site, place: Path) -> Path:
    """The release's image for a place."""
    said = json.loads(site.ok("env", "image", "stage", "--for", place, "--json"))
    return Path(said["path"])
