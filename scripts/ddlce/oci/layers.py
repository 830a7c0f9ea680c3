"""The layers of an image. What changes rarely comes first, so that a new release shares it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from ddlce.env.imagefile import Hashed, Member, write_tar
from ddlce.env.relink import PackagePlan
from ddlce.errors import SourceError
from ddlce.lock import spec_name
from ddlce.origins import PATCHELF
from ddlce.packagecache import find

if TYPE_CHECKING:
    from ddlce.engine.worker import OnProgress

#: From the lowest: libraries and interpreters, other projects' wheels with what stands on them, and
#: what is made of DDL-CE's own tree alone.
LAYERS = ("base", "frameworks", "ours")

#: How the file of a tool begins that edits other files, and is in no package.
TOOL = PATCHELF.rpartition("/")[2] + "-"

#: gzip's; higher ones take far longer.
LEVEL = 4


@dataclass(frozen=True)
class Layer:
    """A written layer.

    Attributes:
        name: of LAYERS.
        digest, size: of the blob.
        diff_id: sha256 of the tar archive in it.
    """

    name: str
    digest: str
    size: int
    diff_id: str


def divide(plans: list[PackagePlan], pkgs: Path) -> dict[str, list[PackagePlan]]:
    """The packages of each layer.

    Args:
        plans: of all packages.
        pkgs: the release's cache of packages, which says what each was made from.

    Raises:
        SourceError: a package is not in the cache.
    """
    sources = {plan.record.data["name"]: _sources(plan, pkgs) for plan in plans}
    depends = {
        plan.record.data["name"]: {spec_name(s) for s in plan.record.data.get("depends", [])}
        for plan in plans
    }
    wheels = {
        name for name, found in sources.items() if found and all(s.endswith(".whl") for s in found)
    }
    # What is compiled against others' compiled code: not what needs a list of certificates.
    noarch = {plan.record.data["name"] for plan in plans if plan.record.data["subdir"] == "noarch"}
    upper = wheels - noarch
    while more := {name for name, below in depends.items() if below & upper} - upper:
        upper |= more
    upper |= wheels
    layers: dict[str, list[PackagePlan]] = {name: [] for name in LAYERS}
    for plan in plans:
        name = plan.record.data["name"]
        layer = "ours" if not sources[name] else "frameworks" if name in upper else "base"
        layers[layer].append(plan)
    return layers


def _sources(plan: PackagePlan, pkgs: Path) -> list[str]:
    """The names of the files that a package was made from, beside the tree's own and tools."""
    data = plan.record.data
    folder = find(pkgs, plan.record.stem, str(data.get("sha256")))
    if folder is None:
        raise SourceError(
            f"{pkgs} has no {plan.record.stem}, of which the release was made",
            "install the release again, or look for damage: ddlce env verify",
        )
    try:
        said = json.loads((folder / "info" / "ddl-ce.json").read_bytes())
    except FileNotFoundError:  # of another channel
        return [plan.record.stem]
    names = [n.removeprefix("source ") for n in said.get("inputs", {}) if n.startswith("source ")]
    return [name for name in names if not name.startswith(TOOL)]


def rooted(members: Iterable[Member], prefix: Path, moved: tuple[Path, Path]) -> Iterator[Member]:
    """Members under their place in the image.

    Args:
        members: with names in the prefix.
        prefix: in the image.
        moved: the root that the release is under, and the image's: what conda-meta and .condarc say
            of the first one is said of the second.
    """
    for member in members:
        data, file = member.data, member.file
        if member.name.startswith(("conda-meta/", ".condarc")) and not member.link:
            text = data if data is not None else Path(file).read_bytes()
            old, new = (str(path).encode() for path in moved)
            data, file = text.replace(old, new), ""
            if member.name == "conda-meta/history":  # conda looks for it, and it has times in it
                data = b""
        yield replace(member, name=f"{prefix}/{member.name}".lstrip("/"), data=data, file=file)


def write_layer(
    name: str, blobs: Path, members: Iterable[Member], progress: OnProgress | None = None
) -> Layer:
    """Write a layer into a folder of blobs; the same members give the same bytes.

    Raises:
        SourceError: a file of the release is gone.
        OSError: of writing.
    """
    partial = blobs / f".{name}.new"
    with partial.open("xb") as stream:
        packed = Hashed(stream)
        with gzip.GzipFile("", "wb", LEVEL, cast(IO[bytes], packed), mtime=0) as squeeze:
            plain = Hashed(cast(IO[bytes], squeeze))
            write_tar(cast(IO[bytes], plain), members, progress)
    digest = packed.digest.hexdigest()
    partial.chmod(0o644)
    partial.rename(blobs / digest)
    return Layer(name, digest, packed.size, plain.digest.hexdigest())
