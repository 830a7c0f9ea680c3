"""Finds the image of this environment for `ddlrun -stage`, and reads what is said of it.

`ddlce env image` makes images, each with a small file beside it that says what it is (JSON).
"""

import json
import os
import re
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ddl.launch.errors import LaunchError

FORMAT = 1
#: `ddlce env image` has the same names.
PLACE_VARIABLE = "DDLCE_STAGE_PLACE"
ORIGIN = Path("conda-meta", "ddl-ce.origin")
_ENDING = re.compile(r"-[0-9a-f]{16}\.tar\.zst$")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class Image:
    """An image, as its manifest tells.

    Attributes:
        env, release, digest: the release that it is of.
        place: the folder of the hosts that it is made for.
        name: of its own folder there.
        sha256, size: of the file; bytes.
        unpacked, files: what it takes on a host's disk: bytes, and files.
    """

    path: Path
    env: str
    release: str
    digest: str
    place: str
    name: str
    sha256: str
    size: int
    unpacked: int
    files: int

    @property
    def prefix(self) -> str:
        """Where the environment is on each host."""
        return f"{self.place}/{self.name}"


def find_image(given: Path | None, environ: Mapping[str, str], prefix: Path) -> Image:
    """The image that is named, or the one that was made of the environment at `prefix`.

    Args:
        given: the image, or the file beside it; None: look where `ddlce env image` puts them.
        environ: names the user's cache, and the place.
        prefix: the environment that this ddlrun is of.

    Raises:
        LaunchError: there is none, it is of another release, or others could have changed it.
    """
    origin = _origin(prefix)
    make = f"Make it once: ddlce env image {prefix}"
    if given is not None:
        image = read_manifest(_manifest_of(given))
        if _release(vars(image)) != _release(origin):
            raise LaunchError(
                f"-stage={given} is an image of {image.env} {image.release} "
                f"({image.digest[:8]}), but this ddlrun is of {origin['env']} "
                f"{origin['release']} ({origin['digest'][:8]})",
                make,
            )
        _check_owner(image.path, prefix)
        return image
    folders = _folders(environ, prefix)
    found = [image for folder in folders for image in _images(folder, _release(origin))]
    wanted = environ.get(PLACE_VARIABLE) or f"/tmp/ddl-ce-{os.getuid()}"
    chosen = [image for image in found if image.place == wanted]
    if not chosen and PLACE_VARIABLE not in environ:
        chosen = found
    if not chosen:
        looked = " and ".join(map(str, folders))
        raise LaunchError(f"-stage: {looked} have no image of {prefix} for {wanted}", make)
    places = sorted({image.place for image in chosen})
    if len(places) > 1:
        raise LaunchError(
            f"-stage: there are images of {prefix} for {' and '.join(places)}",
            f"Name one, with -stage=FILE or {PLACE_VARIABLE}.",
        )
    _check_owner(chosen[0].path, prefix)
    return chosen[0]


def read_manifest(path: Path) -> Image:
    """The image that this file tells of.

    Raises:
        LaunchError: it is not there or not understood, or the image is not there.
    """
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise LaunchError(
            f"-stage: {path}: {error.strerror}", "`ddlce env image` writes it beside the image."
        ) from None
    except ValueError:
        said = None
    known = {field.name: field.type for field in fields(Image) if field.name != "path"}
    if (
        not isinstance(said, dict)
        or said.get("format") != FORMAT
        or any(type(said.get(name)) is not kind for name, kind in known.items())
        or not isinstance(said.get("image"), str)
        or not _NAME.fullmatch(said["image"])
        or not _NAME.fullmatch(said["name"])
        or not said["place"].startswith("/")
    ):
        raise LaunchError(f"-stage: {path} is not understood", "Make it anew: ddlce env image.")
    image = Image(path.with_name(said["image"]), **{name: said[name] for name in known})
    if not image.path.is_file():
        raise LaunchError(
            f"-stage: {image.path} is not there, though {path.name} tells of it",
            "Make it anew: ddlce env image.",
        )
    return image


def _manifest_of(given: Path) -> Path:
    return (
        given if given.suffix == ".json" else given.with_name(_ENDING.sub("", given.name) + ".json")
    )


def _origin(prefix: Path) -> dict[str, Any]:
    """What ddlce says of the environment; it must be a release."""
    try:
        origin = json.loads((prefix / ORIGIN).read_text(encoding="utf-8"))
        kind = origin["kind"]
        _release(origin)
    except (OSError, ValueError, LookupError, TypeError):
        raise LaunchError(
            f"-stage: {prefix} is no environment of ddlce, so there is no image of it",
            "Run the ddlrun of a release.",
        ) from None
    if kind != "release":
        raise LaunchError(
            f"-stage: {prefix} is a clone, and images are of releases",
            "Run the release's own ddlrun.",
        )
    assert isinstance(origin, dict)
    return origin


def _release(said: Mapping[str, Any]) -> tuple[str, str, str]:
    return said["env"], said["release"], said["digest"]


def _folders(environ: Mapping[str, str], prefix: Path) -> list[Path]:
    """Where `ddlce env image` puts images: in the user's cache, or beside the environments."""
    home = Path(environ.get("HOME") or "/")
    cache = Path(environ.get("DDLCE_CACHE") or home / ".cache" / "ddl-ce")
    return [cache / "images", prefix.parents[2] / "images"]


def _images(folder: Path, release: tuple[str, str, str]) -> list[Image]:
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            image = read_manifest(path)
        except LaunchError:
            continue  # of an older version, or of an image that is gone
        if _release(vars(image)) == release:
            found.append(image)
    return found


def _check_owner(path: Path, prefix: Path) -> None:
    """An image is code: only root, the user and the release's owner may have made it."""
    for file in (path, path.parent):
        status = file.stat()
        trusted = {0, os.geteuid(), prefix.stat().st_uid}
        open_to_all = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        if status.st_uid not in trusted:
            raise LaunchError(
                f"-stage: {file} belongs to user {status.st_uid}",
                "Use an image that you, root or the release's owner has made.",
            )
        if open_to_all:
            raise LaunchError(f"-stage: everybody may write {file}", f"chmod o-w {file}")


def own_prefix() -> Path:
    """The environment that this ddlrun is of."""
    return Path(sys.prefix).resolve()
