"""Makes the container image of an installed release."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.env.imagefile import other_members, package_members
from ddlce.env.layout import Layout, Origin, require_origin
from ddlce.env.records import read_records
from ddlce.env.relink import PackagePlan, Unusual, plan_links
from ddlce.errors import InputError
from ddlce.files import explain_os_errors, make_folder, on_disk_at_end, rename_synced
from ddlce.locks import locked
from ddlce.oci.layers import LAYERS, Layer, divide, rooted, write_layer
from ddlce.oci.layout import read_base, write_layout
from ddlce.ownership import check_place
from ddlce.smoke import clean_environment

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress

#: The root in the image.
ROOT = Path("/opt/ddl-ce")


@dataclass(frozen=True)
class Made:
    """An image that was written.

    Attributes:
        folder: the layout.
        tag: the image's name in it.
        digest: of its manifest.
        prefix: of the release in the image.
        layers: its own, from the lowest.
    """

    folder: Path
    tag: str
    digest: str
    prefix: Path
    layers: list[Layer]


def make_oci(source: Path, base: str, folder: Path, progress: OnProgress | None = None) -> Made:
    """Write an OCI layout with the image of a release, on a base image.

    Args:
        source: the prefix of a complete release.
        base: `DIR` or `DIR:TAG`, the layout of an image with glibc and a shell.

    Raises:
        InputError: `source` is no release, the folder is there already, or the base is not usable.
        SourceError: a file of the release or of the base is gone or damaged.
        MachineError: the folder cannot be written.
    """
    origin = require_origin(source)
    if origin.kind != "release":
        raise InputError(f"{source} is a clone; an image is of a release", "name the release")
    with locked(folder.with_name(f".{folder.name}.lock"), passing=True):
        if folder.exists():
            raise InputError(f"{folder} is there already", "name a new folder: --out DIR")
        return _make(origin, source, base, folder, progress)


def _make(
    origin: Origin, source: Path, base: str, folder: Path, progress: OnProgress | None
) -> Made:
    check_place(source, "the source", site=True)
    under = read_base(base, origin.platform)
    pkgs = Path(origin.pkgs)
    prefix = Layout(ROOT).prefix(origin.env, origin.release, origin.digest)
    try:
        plans = plan_links(source, prefix, read_records(source), pkgs)
    except Unusual as error:
        raise InputError(
            f"no image of {source} can be made: {error}",
            "look for damage with `ddlce env verify`",
        ) from error
    partial = folder.with_name(f".{folder.name}.new")
    with explain_os_errors(folder):
        shutil.rmtree(partial, ignore_errors=True)
        make_folder(partial / "blobs" / "sha256")
        try:
            with on_disk_at_end(partial):
                layers = _write_layers(partial, source, prefix, plans, pkgs, progress)
                labels = {
                    "org.opencontainers.image.title": origin.env,
                    "org.opencontainers.image.version": origin.release,
                    "org.opencontainers.image.source": "https://github.com/ddl-ce/ddl-ce",
                    "io.github.ddl-ce.lock": origin.digest,
                }
                where = (partial, under, layers, origin.platform, origin.release)
                digest = write_layout(*where, _environment(source, prefix), labels)
            rename_synced(partial, folder)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return Made(folder, origin.release, digest, prefix, layers)


def _write_layers(
    folder: Path,
    source: Path,
    prefix: Path,
    plans: list[PackagePlan],
    pkgs: Path,
    progress: OnProgress | None,
) -> list[Layer]:
    layers = []
    for name, group in divide(plans, pkgs).items():
        members = list(package_members(group))
        if name == LAYERS[-1]:
            members += other_members(source)
        placed = rooted(members, prefix, (pkgs.parent, ROOT))
        layers.append(write_layer(name, folder / "blobs" / "sha256", placed, progress))
    return layers


def _environment(source: Path, prefix: Path) -> dict[str, str]:
    """What loading the module would set, with the paths of the image."""
    values = clean_environment(source, {})
    del values["HOME"]
    return {name: value.replace(str(source), str(prefix)) for name, value in values.items()}
