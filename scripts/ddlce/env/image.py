"""`ddlce env image`: a release as one compressed file, for disks of the nodes that run it.

An environment of 34 000 small files starts slowly from a shared file system. The image holds the
same files with the paths of a folder on a node's own disk already inside. `ddlrun -stage` brings it
there by one broadcast. An image is a tar archive, compressed by zstd. The same release, place and
version of zstd give the same bytes: files are sorted and have no owner, and only Python's sources
keep their time, by which their bytecode is checked.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, ValidationError

from ddlce.env.imagefile import PARTIAL, ImageContent, write_image
from ddlce.env.layout import Layout, Origin, require_origin
from ddlce.env.records import read_records
from ddlce.env.relink import Unusual, plan_links
from ddlce.errors import InputError
from ddlce.files import explain_os_errors, make_folder, write_atomic
from ddlce.filesystem import check_prefix
from ddlce.ownership import check_place
from ddlce.userpath import absolute
from ddlce.waiting import OnWait, waiting_lock

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress
    from ddlce.settings import Settings

#: Raise it when an image of the same release gets other bytes.
FORMAT = 1
#: Names the place where a user or a site does not say `--for`.
PLACE_VARIABLE = "DDLCE_STAGE_PLACE"


class ImageManifest(BaseModel):
    """`NAME.json` beside an image: what it is (JSON).

    Attributes:
        format: of the image and of this file.
        env, release, digest, platform: of the release, as `Origin` has them.
        place: the folder of the nodes that the image is unpacked in.
        name: of the image's own folder there.
        image: the file's name, beside this one.
        sha256: of the file.
        size: of the file, in bytes.
        unpacked: bytes that it takes on a disk with blocks of 4 KiB.
        files: files, links and folders in it.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    format: int
    env: str
    release: str
    digest: str
    platform: str
    place: str
    name: str
    image: str
    sha256: str
    size: int
    unpacked: int
    files: int


@dataclass(frozen=True)
class Imaged:
    """The outcome of `make_image`.

    Attributes:
        image: the file.
        manifest: the file beside it.
        said: the manifest's content.
        made: whether it was made now; else it was there.
    """

    image: Path
    manifest: Path
    said: ImageManifest
    made: bool


def make_image(
    settings: Settings,
    source: Path,
    place: Path,
    folder: Path | None = None,
    *,
    progress: OnProgress | None = None,
    on_wait: OnWait | None = None,
) -> Imaged:
    """Make the image of a release for a place, or find the one that is there.

    Args:
        source: the prefix of a complete release.
        place: a folder of the nodes, as it will be there; see `check_node_place`.
        folder: where images are kept; `images_folder` by default.

    Raises:
        InputError: `source` is no release, the place is not usable, or the release has something
            that cannot be moved.
        SourceError: a file of the release is gone.
        MachineError: the folder is not writable, or the disk is full.
    """
    origin = _release(source)
    name = f"{origin.env}-{origin.release}-{_inputs(origin, place)[:12]}"
    check_node_place(place)
    check_prefix(place / name)
    folder = absolute(folder, "--out") if folder else images_folder(settings)
    check_place(folder, "the folder of images")
    manifest = folder / f"{name}.json"
    with explain_os_errors(folder):
        make_folder(folder)
    with waiting_lock(folder / ".lock", on_wait):
        if found := _found(manifest):
            return found
        content = _content(source, place / name, Path(origin.pkgs))
        with explain_os_errors(folder):
            for leftover in folder.glob(f".{name}{PARTIAL}*"):
                leftover.unlink()
            written = write_image(content, folder, name, progress)
        said = ImageManifest(
            format=FORMAT,
            **origin.model_dump(include={"env", "release", "digest", "platform"}),
            place=str(place),
            name=name,
            image=written.path.name,
            sha256=written.sha256,
            size=written.size,
            unpacked=written.unpacked,
            files=written.files,
        )
        write_atomic(manifest, said.model_dump_json(indent=2) + "\n")
    return Imaged(written.path, manifest, said, made=True)


def node_place() -> Path:
    """The place of nodes where none is named: DDLCE_STAGE_PLACE, else /tmp/ddl-ce-UID."""
    return Path(os.environ.get(PLACE_VARIABLE) or f"/tmp/ddl-ce-{os.getuid()}")


def images_folder(settings: Settings) -> Path:
    """Where images are kept: beside the environments for who may write there, else in the cache."""
    root = Layout(settings.root).root
    mine = os.access(root, os.W_OK | os.X_OK, effective_ids=True)
    return (root if mine else settings.cache) / "images"


def check_node_place(place: Path) -> None:
    """Refuse a place whose path could not stand in files, or would not be the same everywhere.

    Raises:
        InputError: names it, and says why.
    """
    text = str(place)
    if not re.fullmatch(r"(/[A-Za-z0-9_.+-]+)+", text) or {".", ".."} & set(place.parts):
        raise InputError(
            f"--for {text}: not a usable path of a folder on the nodes",
            "write it from / on, with letters, digits and _ . + - in its names",
        )
    if place.parts[1] in ("proc", "sys", "dev"):
        raise InputError(
            f"--for {text}: /{place.parts[1]} is no disk", "name a folder of the nodes' own disk"
        )


def _release(source: Path) -> Origin:
    origin = require_origin(source)
    if origin.kind != "release":
        raise InputError(
            f"{source} is a clone, which may change; an image is of a release",
            "name the release, or install one that has what the clone has",
        )
    for place in (source, Path(origin.pkgs)):
        check_place(place, "the source", site=True)
    return origin


def _inputs(origin: Origin, place: Path) -> str:
    """The digest of all that an image depends on."""
    known = origin.model_dump(include={"env", "release", "digest", "platform", "manifest"})
    text = json.dumps({**known, "place": str(place), "format": FORMAT}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _content(source: Path, prefix: Path, pkgs: Path) -> ImageContent:
    try:
        return ImageContent(source, plan_links(source, prefix, read_records(source), pkgs))
    except Unusual as error:
        raise InputError(
            f"no image of {source} can be made for {prefix}: {error}",
            "look for damage with `ddlce env verify`, or choose a shorter --for",
        ) from error


def _found(manifest: Path) -> Imaged | None:
    """The image of a manifest, if both are complete."""
    try:
        description = ImageManifest.model_validate_json(manifest.read_text(encoding="utf-8"))
        image = manifest.with_name(description.image)
        complete = description.format == FORMAT and image.stat().st_size == description.size
    except (OSError, ValidationError, UnicodeDecodeError):
        return None
    return Imaged(image, manifest, description, made=False) if complete else None
