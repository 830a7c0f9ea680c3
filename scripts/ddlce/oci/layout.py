"""An OCI image layout: blobs by their sha256, a manifest, a configuration, and an index.

See https://github.com/opencontainers/image-spec. Nothing in it depends on the time or the machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ddlce import jsontext
from ddlce.env.imagefile import TIME
from ddlce.errors import InputError, SourceError
from ddlce.files import link_or_copy, sha256_file
from ddlce.oci.layers import Layer

MEDIA = "application/vnd.oci.image"
INDEX, MANIFEST, CONFIG = (f"{MEDIA}.{n}.v1+json" for n in ("index", "manifest", "config"))
LAYER = f"{MEDIA}.layer.v1.tar+gzip"

#: What annotations of an index name an image by.
REF = "org.opencontainers.image.ref.name"

#: The time of everything.
CREATED = datetime.fromtimestamp(TIME, UTC).isoformat().replace("+00:00", "Z")

ARCHITECTURES = {"linux-64": "amd64", "linux-aarch64": "arm64", "linux-ppc64le": "ppc64le"}


@dataclass(frozen=True)
class Base:
    """An image that the new one stands on.

    Attributes:
        blobs: the folder with its layers.
        layers: their descriptors.
        config: its configuration.
    """

    blobs: Path
    layers: list[dict[str, Any]]
    config: dict[str, Any]


def read_base(said: str, platform: str) -> Base:
    """Read an image of a layout: `DIR`, or `DIR:TAG` where it has several.

    Raises:
        InputError: there is no such layout or image, or it is for other machines.
        SourceError: a part of it is damaged.
    """
    folder, _, tag = said.partition(":")
    path = Path(folder)
    if not (path / "oci-layout").is_file():
        raise InputError(
            f"--base {folder} is no OCI layout",
            "make one: skopeo copy docker://docker.io/library/debian:12 oci:DIR:12",
        )
    blobs = path / "blobs" / "sha256"
    manifests = _mapping((path / "index.json").read_bytes(), path).get("manifests", [])
    found = [one for one in manifests if not tag or _ref(one) == tag]
    if len(found) != 1:
        there = ", ".join(sorted(_ref(one) for one in manifests)) or "none"
        raise InputError(f"--base {said}: {len(found)} images fit", f"name one as DIR:TAG: {there}")
    manifest = _blob(blobs, found[0])
    if manifest.get("mediaType", MANIFEST) != MANIFEST or "layers" not in manifest:
        raise InputError(
            f"--base {said} is no image of one platform", "copy it with skopeo, which chooses one"
        )
    config = _blob(blobs, manifest["config"])
    wanted = ARCHITECTURES[platform]
    if config.get("architecture") != wanted:
        raise InputError(
            f"--base {said} is for {config.get('architecture')}, and the release for {wanted}",
            "name a base for the same machines",
        )
    return Base(blobs, manifest["layers"], config)


def _ref(descriptor: Mapping[str, Any]) -> str:
    return str((descriptor.get("annotations") or {}).get(REF, ""))


def _blob(blobs: Path, descriptor: Mapping[str, Any]) -> dict[str, Any]:
    path = _blob_path(blobs, descriptor)
    data = path.read_bytes() if path.is_file() else b""
    if hashlib.sha256(data).hexdigest() != path.name:
        raise SourceError(f"{path} is damaged or missing", "copy the base image again")
    return _mapping(data, path)


def _blob_path(blobs: Path, descriptor: Mapping[str, Any]) -> Path:
    algorithm, _, digest = str(descriptor.get("digest")).partition(":")
    if algorithm != "sha256" or len(digest) != 64 or not digest.isalnum():
        raise SourceError(f"{blobs}: a descriptor without a sha256", "copy the base image again")
    return blobs / digest


def _mapping(data: bytes, where: Path) -> dict[str, Any]:
    try:
        said = jsontext.load(data)
    except ValueError as error:
        raise SourceError(f"{where}: no JSON: {error}", "copy the base image again") from error
    if not isinstance(said, dict):
        raise SourceError(f"{where}: no JSON object", "copy the base image again")
    return said


def write_layout(
    folder: Path,
    base: Base,
    layers: list[Layer],
    platform: str,
    tag: str,
    environment: Mapping[str, str],
    labels: Mapping[str, str],
) -> str:
    """Write all but the new layers, which are in the folder's blobs already.

    Returns:
        The digest of the manifest.

    Raises:
        SourceError: a layer of the base is damaged.
        MachineError: the folder cannot be written.
    """
    blobs = folder / "blobs" / "sha256"
    for descriptor in base.layers:
        path = _blob_path(base.blobs, descriptor)
        if not path.is_file() or sha256_file(path) != path.name:
            raise SourceError(f"{path} is damaged or missing", "copy the base image again")
        link_or_copy(path, blobs / path.name)
    config = _config(base, layers, platform, environment, labels)
    described = _put(blobs, config, CONFIG)
    new = [
        {"mediaType": LAYER, "digest": f"sha256:{layer.digest}", "size": layer.size}
        for layer in layers
    ]
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": described,
        "layers": [*base.layers, *new],
        "annotations": dict(labels),
    }
    descriptor = _put(blobs, manifest, MANIFEST)
    descriptor["annotations"] = {REF: tag}
    descriptor["platform"] = {"architecture": ARCHITECTURES[platform], "os": "linux"}
    index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [descriptor]}
    (folder / "index.json").write_bytes(_dump(index))
    (folder / "oci-layout").write_bytes(_dump({"imageLayoutVersion": "1.0.0"}))
    return str(descriptor["digest"])


def _config(
    base: Base,
    layers: list[Layer],
    platform: str,
    environment: Mapping[str, str],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """The image's configuration: that of the base, with what is new."""
    under = base.config.get("config") or {}
    return {
        "created": CREATED,
        "architecture": ARCHITECTURES[platform],
        "os": "linux",
        "config": {
            **under,
            "Env": _environment(under.get("Env") or [], environment),
            "Cmd": under.get("Cmd") or ["/bin/sh"],
            "Labels": {**(under.get("Labels") or {}), **labels},
        },
        "rootfs": {
            "type": "layers",
            "diff_ids": [
                *base.config.get("rootfs", {}).get("diff_ids", []),
                *(f"sha256:{layer.diff_id}" for layer in layers),
            ],
        },
        "history": [
            *base.config.get("history", []),
            *(
                {"created": CREATED, "created_by": f"ddlce image oci: {layer.name}"}
                for layer in layers
            ),
        ],
    }


def _environment(old: list[str], new: Mapping[str, str]) -> list[str]:
    values = dict(each.partition("=")[::2] for each in old) | dict(new)
    return [f"{name}={value}" for name, value in sorted(values.items())]


def _put(blobs: Path, data: Mapping[str, Any], media: str) -> dict[str, Any]:
    """Write a JSON blob; its descriptor."""
    text = _dump(data)
    digest = hashlib.sha256(text).hexdigest()
    (blobs / digest).write_bytes(text)
    return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(text)}


def _dump(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode() + b"\n"
