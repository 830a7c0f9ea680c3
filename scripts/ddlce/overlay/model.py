"""What an overlay is, where overlays are, and how a name finds one."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from ddlce.env.layout import Layout, Origin, clone_target, clones_folder, read_origin
from ddlce.errors import InputError
from ddlce.safepath import Word

#: Says of a venv that it is an overlay. Its last file: a venv that has it is complete.
MARKER = "ddl-ce.overlay"


class Overlay(BaseModel):
    """`ddl-ce.overlay`: what an overlay is and which release it is made on (JSON).

    Attributes:
        prefix: where it was made: its programs name that place.
        release: the prefix of the release.
        env, version, digest: of that release.
        python: the release's Python, as `3.11`.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    prefix: str
    release: str
    env: Word
    version: Word
    digest: str
    python: str


def read_overlay(prefix: Path) -> Overlay | None:
    """What the overlay at `prefix` is, or None where there is no complete one."""
    try:
        return Overlay.model_validate_json((prefix / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValidationError, UnicodeDecodeError):
        return None


def overlays() -> list[Path]:
    """All complete overlays in the folder of clones."""
    folder = clones_folder()
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in found if path.name[0] != "." and read_overlay(path)]


def find_overlay(name: str) -> tuple[Path, Overlay]:
    """The overlay that is given by name or by path, and what it is.

    Raises:
        InputError: not a usable name, or there is no such overlay.
    """
    prefix = clone_target(name).resolve()
    overlay = read_overlay(prefix)
    if overlay:
        return prefix, overlay
    origin = read_origin(prefix)
    if origin:
        raise InputError(
            f"{prefix} is a {origin.kind}, not an overlay", "check it with: ddlce env verify"
        )
    known = ", ".join(path.name for path in overlays())
    raise InputError(
        f"there is no overlay at {prefix}",
        f"there are: {known}" if known else f"make one with: ddlce env overlay {name}",
    )


def require_release(prefix: Path) -> Origin:
    """What the release at `prefix` is.

    Raises:
        InputError: it is no complete environment, a clone, or not where it was installed.
    """
    origin = read_origin(prefix)
    if origin is None:
        raise InputError(f"{prefix} is not a complete environment", "see: ddlce env list")
    if origin.kind != "release":
        raise InputError(
            f"{prefix} is a {origin.kind}: an overlay is made on a release, which never changes",
            "install into the clone itself, or name a release with --release",
        )
    installed = Layout(Path(origin.pkgs).parent).prefix(origin.env, origin.release, origin.digest)
    if prefix.resolve() != installed.resolve():
        raise InputError(
            f"the release {prefix} was moved: its files name {installed}, where it was installed",
            "move it back, or install it anew with: ddlce env create",
        )
    return origin
