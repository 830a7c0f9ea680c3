"""What packages bring from other projects: SBOMs of wheels, vendored modules, renamed libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from license_expression import ExpressionError
from packageurl import PackageURL
from packaging.utils import canonicalize_name

from ddlce import jsontext
from ddlce.licences import licensing
from ddlce.sbom.model import Carried

#: SBOMs that wheels carry (PEP 770), and pip's.
SBOM = re.compile(r".+\.dist-info/sboms/[^/]+\.json|.+/_vendor/bom\.cdx\.json")

#: Metadata of a distribution inside another one's package.
VENDORED = re.compile(r".+/site-packages/[^/]+/(?:.+/)?([^/]+)-([^-/]+)\.dist-info/METADATA")

#: How auditwheel renames libraries, once or twice: `libpng16-abb096d5.so.16.58.0`.
RENAMED = re.compile(r"(lib.+?)(?:[-.][0-9a-f]{8}){1,2}\.so(?:\.[\d.]+)?")

#: A library beside modules that has the version of an interface, as its own project's have not.
FOREIGN = re.compile(r"(lib.+?)\.so(?:\.\d+)+")

#: Bytes of an SBOM.
LONGEST = 64 << 20


def of_sbom(path: str, text: bytes) -> Iterator[Carried]:
    """The parts that a CycloneDX file of a wheel names, but for the wheel itself.

    Raises:
        ValueError: it is no such file.
    """
    data = jsontext.load(text, LONGEST)
    if not isinstance(data, dict) or data.get("bomFormat") != "CycloneDX":
        raise ValueError("not CycloneDX")
    whole = data.get("metadata", {}).get("component", {})
    own = {_identity(whole), PurePosixPath(path).parent.parent.name}
    for part in data.get("components", ()):
        if part.get("version") and _identity(part) not in own:
            purl, told = _purl(part), _license(part)
            yield Carried(str(part["name"]), str(part["version"]), purl, "", path, told)


def _identity(part: dict[str, Any]) -> str:
    """The project of a part: one's modules have its purl with a path behind."""
    return re.split("[?#]", str(part.get("purl") or part.get("bom-ref")))[0]


def _purl(part: dict[str, Any]) -> str:
    """The part's purl, without the folder on the machine that built it."""
    try:
        found = PackageURL.from_string(str(part.get("purl") or ""))
    except ValueError:
        return ""
    words = {k: v for k, v in found.qualifiers.items() if not str(v).startswith("file:")}
    return PackageURL(found.type, found.namespace, found.name, found.version, words).to_string()


def _license(part: dict[str, Any]) -> str:
    """The licence as one SPDX expression; "" where there is none, or other words."""
    words = []
    for entry in part.get("licenses") or ():
        words.append(entry.get("expression") or entry.get("license", {}).get("id") or "")
    try:
        # Cargo's old way to say OR is a slash.
        parsed = licensing().parse(
            " AND ".join(f"({w.replace('/', ' OR ')})" for w in words if w), validate=True
        )
    except ExpressionError:
        return ""
    return "" if parsed is None else str(parsed)


def of_metadata(path: str) -> Carried | None:
    """The distribution whose metadata this is, if it lies inside another one's package."""
    found = VENDORED.fullmatch(path)
    if not found:
        return None
    name = canonicalize_name(found[1])
    return Carried(name, found[2], PackageURL("pypi", None, name, found[2]).to_string(), "", path)


def of_library(path: str, package: str) -> Carried | None:
    """The library that an ELF file is, if another project has made it.

    Args:
        package: the name of its package, which its own libraries have in theirs.
    """
    if "/site-packages/" not in path:
        return None
    folder, name = PurePosixPath(path).parent.name, PurePosixPath(path).name
    found = RENAMED.fullmatch(name) or FOREIGN.fullmatch(name)
    if found and package.replace("-", "") not in found[1]:
        return Carried(found[1], "", "", path, path)
    if folder.endswith(".libs") and not found and package not in name:
        return Carried(name.partition(".so")[0], "", "", path, path)
    return None
