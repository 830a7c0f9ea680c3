"""What a release is made of, as far as advisories are about it: from its SBOM, as CycloneDX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

from packaging.utils import canonicalize_name

from ddlce import jsontext
from ddlce.advisories.model import Part
from ddlce.advisories.osv import DEBIAN
from ddlce.errors import InputError
from ddlce.model.envlock import EnvLock
from ddlce.model.source import ROLLING
from ddlce.sbom.release import Release

PURL = re.compile(r"pkg:(?P<type>\w+)/(?P<name>[^@?#]+)@(?P<version>[^?#]+)(\?(?P<words>[^#]*))?")

#: Of sources whose version does not say it: where the release is built.
OURS = "bookworm"


def read_parts(path: Path, lock: EnvLock | None = None) -> list[Part]:
    """The parts of an SBOM that `ddlce sbom` has written.

    Args:
        lock: the one that it must be of. Its name does not tell: a release is locked several times.

    Raises:
        InputError: it is missing, no CycloneDX, or of another lock.
    """
    try:
        data = jsontext.load(path.read_bytes())
        if data["bomFormat"] != "CycloneDX":
            raise ValueError("it has another bomFormat")
        if lock and data["serialNumber"] != f"urn:uuid:{Release.of(lock).number}":
            raise InputError(
                f"{path} is not of this lock, {lock.digest[:8]}", "make it again with: ddlce sbom"
            )
        found = (part for component in data["components"] for part in _parts(component))
        return [*dict.fromkeys(found)]  # Debian's files of one source may be of two revisions
    except FileNotFoundError:
        raise InputError(f"there is no SBOM {path}", "make it with: ddlce sbom") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(
            f"{path}: not an SBOM as CycloneDX: {error}", "make it again with: ddlce sbom"
        ) from error


def places_of(part: Part) -> tuple[str, ...]:
    """The ecosystems whose advisories are about a part.

    Most data know releases alone. A rolling suite is ahead of ours, so a hole that any newer
    release has mended since is open in it.
    """
    if part.ecosystem not in [f"Debian:{suite}" for suite in ROLLING]:
        return (part.ecosystem,)
    releases = [*DEBIAN.values()]
    newer = releases[releases.index(OURS) + 1 :]
    return (part.ecosystem, *(f"Debian:{release}" for release in newer))


def _parts(component: Mapping[str, Any]) -> Iterator[Part]:
    pedigree = component.get("pedigree", {})
    mended = frozenset(
        issue["id"] for patch in pedigree.get("patches", ()) for issue in patch.get("resolves", ())
    )
    inside = [*pedigree.get("ancestors", ()), *component.get("components", ())]
    for purl in dict.fromkeys(part.get("purl", "") for part in inside):
        if (found := PURL.fullmatch(purl.partition("#")[0])) and (place := _place(found)):
            yield Part(component["name"], *place, mended)


def _place(found: re.Match[str]) -> tuple[str, str, str] | None:
    """Ecosystem, name and version; None where no advisories are read of it."""
    kind, name, version = (unquote(found[part]) for part in ("type", "name", "version"))
    words = dict(parse_qsl(found["words"] or ""))
    if kind == "pypi":
        return "PyPI", canonicalize_name(name), version
    if kind != "deb" or not name.startswith("debian/"):
        return None
    release = re.search(r"deb(\d+)u", version)
    suite = words.get("distro") or DEBIAN.get(release[1] if release else "", OURS)
    name = name.removeprefix("debian/")
    if words.get("arch") != "source":
        # What was built again has the same source: 1.3.1-1+b1.
        return f"Debian:{suite}", words.get("upstream", name), re.sub(r"\+b\d+$", "", version)
    # We take upstream's files. Debian's patches are those that the SBOM names, and no others. A
    # stable release that took upstream's file anew has 3.0.22-1~deb12u1, which is before 3.0.22-1.
    upstream = re.sub(r"-[^-~]+(~deb\d+u)?[^-]*$", _first, version)
    if suite in ROLLING:  # a release took it from there
        upstream = re.sub(r"~deb\d+u1$", "", upstream)
    return f"Debian:{suite}", name, upstream


def _first(revision: re.Match[str]) -> str:
    return f"-1{revision[1]}1" if revision[1] else "-1"
