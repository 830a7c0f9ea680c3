"""Reads what a release is made of: from its lock, its packages and the locked sources."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from conda_package_streaming.package_streaming import stream_conda_component
from packageurl import PackageURL

from ddlce import jsontext
from ddlce.elf import MAGIC
from ddlce.errors import SourceError
from ddlce.files import sha256_file
from ddlce.model.envlock import EnvLock, LockedPackage
from ddlce.model.source import Source, SourcesLock
from ddlce.noarch import SITE, site_packages
from ddlce.sbom import carried
from ddlce.sbom.model import Carried, Component, Origin, Patch
from ddlce.settings import Settings
from ddlce.sharedchannel import checked_file

#: The list of Debian's patches that a recipe takes, beside it.
SERIES = "security.series"

HOLE = re.compile(r"CVE-\d{4}-\d{4,}", re.IGNORECASE)

#: The end of an input's value in a package's digest: the bytes' sha256, after the file's kind.
HEX = 64


@dataclass(frozen=True)
class Tree:
    """What the source tree knows.

    Attributes:
        sources: by sha256.
        series: the lists of Debian's patches, by sha256.
    """

    sources: dict[str, Source]
    series: dict[str, Path]

    @classmethod
    def of(cls, settings: Settings) -> Tree:
        """Read the tree.

        Raises:
            InputError: there is no tree, or its `sources.lock` is damaged.
        """
        lock = SourcesLock.load(settings.sources_lock)
        series = {sha256_file(path): path for path in settings.recipes.rglob(SERIES)}
        return cls({source.sha256: source for source in lock.sources}, series)


def collect(lock: EnvLock, channel: Path, tree: Tree) -> list[Component]:
    """The components of a lock's release, in its order.

    Args:
        tree: the tree that it was built from.

    Raises:
        SourceError: a package is missing, is not the locked one, or was made from a source or
            by patches that the tree does not know.
    """
    site = site_packages(package.model_dump() for package in lock.packages)
    names = {package.name for package in lock.packages}
    return [
        _component(package, checked_file(package, channel), tree, site, names)
        for package in lock.packages
    ]


def _component(
    package: LockedPackage, path: Path, tree: Tree, site: str, names: set[str]
) -> Component:
    info, texts = _info(path)
    compiled, inside = _payload(package, path, site)
    inputs: dict[str, str] = info.get("ddl-ce", {}).get("inputs", {})
    about = info.get("about", {})
    depends = {re.split(r"[\s=<>!~]", spec, maxsplit=1)[0] for spec in package.depends}
    return Component(
        name=package.name,
        version=package.version,
        build=package.build,
        subdir=package.subdir,
        file=package.file,
        sha256=package.sha256,
        license=about.get("license") or "",
        texts=texts,
        summary=about.get("summary") or "",
        homepage=about.get("home") or "",
        depends=tuple(sorted(depends & names)),
        origins=tuple(_origins(package, inputs, tree)),
        patches=tuple(_patches(package, inputs, tree)),
        carried=tuple(sorted(inside)),
        compiled=tuple(sorted(compiled)),
    )


def _info(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The JSON files in info/, by name without suffix, and the texts of licences."""
    found: dict[str, Any] = {}
    texts: dict[str, str] = {}
    with path.open("rb") as stream:
        for tar, member in stream_conda_component(path.name, stream, "info"):
            name = PurePosixPath(member.name.removeprefix("./"))
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            if name.parent == PurePosixPath("info") and name.stem in ("about", "ddl-ce"):
                found[name.stem] = jsontext.load(content.read())
            elif name.parts[:2] == ("info", "licenses"):
                texts["/".join(name.parts[2:])] = content.read().decode("utf-8", "replace")
    return found, texts


def _payload(package: LockedPackage, path: Path, site: str) -> tuple[list[str], set[Carried]]:
    """The ELF files of a package, and what others have made of it."""
    compiled: list[str] = []
    inside: set[Carried] = set()
    with path.open("rb") as stream:
        for tar, member in stream_conda_component(path.name, stream, "pkg"):
            content = tar.extractfile(member) if member.isfile() else None
            if content is None:
                continue
            name = member.name.removeprefix("./")
            if package.noarch == "python" and name.startswith(SITE):
                name = f"{site}/{name.removeprefix(SITE)}"
            if carried.SBOM.fullmatch(name):
                try:
                    inside |= set(carried.of_sbom(name, content.read()))
                except ValueError as error:
                    raise SourceError(f"{path}: {name}: {error}", "report it upstream") from error
            elif vendored := carried.of_metadata(name):
                inside.add(vendored)
            elif content.read(len(MAGIC)) == MAGIC:
                compiled.append(name)
                if library := carried.of_library(name, package.name):
                    inside.add(library)
    return compiled, inside


def _origins(package: LockedPackage, inputs: dict[str, str], tree: Tree) -> Iterator[Origin]:
    """The files that it was made from."""
    for key, sha256 in inputs.items():
        kind, _, file = key.partition(" ")
        if kind != "source":
            continue
        source = tree.sources.get(sha256)
        if source is None:
            raise SourceError(
                f"{package.file} was made from {file}, which sources.lock does not have",
                "build it again from this tree: ddlce build && ddlce index && ddlce lock",
            )
        yield Origin(file, sha256, purl_of(source), source.url or "")


def _patches(package: LockedPackage, inputs: dict[str, str], tree: Tree) -> Iterator[Patch]:
    """Debian's patches that it takes, in their order, then ours."""
    files = {
        key.removeprefix("file "): value for key, value in inputs.items() if key.startswith("file ")
    }
    if SERIES in files:
        path = tree.series.get(files[SERIES][-HEX:])
        if path is None:
            raise SourceError(
                f"{package.file} was made with another {SERIES} than this tree's",
                "build it again from this tree: ddlce build && ddlce index && ddlce lock",
            )
        for line in path.read_text("utf-8").splitlines():
            if name := line.partition("#")[0].strip():
                yield Patch(name, backport=True, holes=_holes(name))
    for name, value in sorted(files.items()):
        if name.endswith((".patch", ".diff")):
            yield Patch(name, value[-HEX:], holes=_holes(name))


def _holes(name: str) -> tuple[str, ...]:
    return tuple(sorted({hole.upper() for hole in HOLE.findall(name)}))


def purl_of(source: Source) -> str:
    """The package URL of a source; "" of a plain file."""
    if source.client.startswith("pypi"):
        words = {"file_name": source.file}
        return PackageURL("pypi", None, source.package, source.version, words).to_string()
    if source.client.startswith("debian"):
        arch = source.file.rpartition("_")[2].removesuffix(".deb")
        words = {"arch": "source" if source.client == "debian-source" else arch}
        if source.suite:
            words["distro"] = source.suite
        # Advisories are about source packages: pool/main/g/glibc/libc6_2.41-12_amd64.deb
        built_from = source.pool.split("/")[-2] if source.pool else source.package
        if built_from != source.package:
            words["upstream"] = built_from
        return PackageURL("deb", "debian", source.package, source.version, words).to_string()
    return ""
