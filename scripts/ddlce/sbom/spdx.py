"""Writes an SBOM as SPDX 2.3, with the library of its authors."""

from __future__ import annotations

import hashlib
import json
import re

from license_expression import LicenseExpression
from spdx_tools.spdx.jsonschema.document_converter import DocumentConverter
from spdx_tools.spdx.model import (
    Actor,
    ActorType,
    Checksum,
    ChecksumAlgorithm,
    CreationInfo,
    Document,
    ExternalPackageRef,
    ExternalPackageRefCategory,
    ExtractedLicensingInfo,
    Package,
    PackagePurpose,
    Relationship,
    RelationshipType,
    SpdxNoAssertion,
)
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
from spdx_tools.spdx.validation.uri_validators import validate_url
from spdx_tools.spdx.writer.write_utils import convert

from ddlce.errors import WorkError
from ddlce.licences import licensing
from ddlce.sbom.model import Carried, Component, Origin, Patch
from ddlce.sbom.release import Release

DOCUMENT = "SPDXRef-DOCUMENT"


def to_spdx(release: Release, components: list[Component]) -> str:
    """The SBOM's text; the same for the same release.

    Raises:
        WorkError: the text is not valid.
    """
    top = _id("Release", release.name)
    made = Package(
        spdx_id=top,
        name=release.env,
        version=release.version,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        comment=f"for {release.platform}; the lock's sha256 is {release.digest}",
        primary_package_purpose=PackagePurpose.APPLICATION,
    )
    document = Document(
        CreationInfo(
            spdx_version="SPDX-2.3",
            spdx_id=DOCUMENT,
            name=release.name,
            document_namespace=f"urn:uuid:{release.number}",
            creators=[Actor(ActorType.TOOL, "ddlce")],
            created=release.time,
        ),
        packages=[made],
        relationships=[Relationship(DOCUMENT, RelationshipType.DESCRIBES, top)],
        extracted_licensing_info=_extracted(components),
    )
    for component in components:
        _add(document, top, component)
    if problems := validate_full_spdx_document(document):
        first = problems[0].validation_message
        raise WorkError(f"the SBOM of {release.name} is no SPDX: {first}", "report it")
    return json.dumps(convert(document, DocumentConverter()), indent=1, ensure_ascii=False) + "\n"


def _add(document: Document, top: str, component: Component) -> None:
    """Add a package with its sources and the parts of others in it."""
    own = _id("Package", component.name)
    document.packages.append(_package(own, component))
    relate = document.relationships.append
    relate(Relationship(top, RelationshipType.CONTAINS, own))
    for name in component.depends:
        relate(Relationship(own, RelationshipType.DEPENDS_ON, _id("Package", name)))
    for origin in component.origins:
        source = _id("Source", component.name, origin.file)
        document.packages.append(_source(source, origin))
        relate(Relationship(own, RelationshipType.GENERATED_FROM, source))
    for inner in component.carried:
        part = _id("Part", component.name, *map(str, (inner.name, inner.purl, inner.told_by)))
        document.packages.append(_part(part, inner))
        relate(Relationship(own, RelationshipType.CONTAINS, part))


def _package(own: str, component: Component) -> Package:
    return Package(
        spdx_id=own,
        name=component.name,
        version=component.version,
        file_name=f"{component.subdir}/{component.file}",
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        checksums=_sha256(component.sha256),
        homepage=_url(component.homepage),
        source_info="\n".join(map(_words, component.patches)) or None,
        license_declared=_license(component.license),
        summary=component.summary or None,
        external_references=_purl(component.purl),
        attribution_texts=[f"{name}:\n{text}" for name, text in sorted(component.texts.items())],
        primary_package_purpose=PackagePurpose.LIBRARY,
    )


def _words(patch: Patch) -> str:
    kind = "patched, as upstream has it later" if patch.backport else "patched"
    return f"{kind}: {patch.name}" + (f" (sha256 {patch.sha256})" if patch.sha256 else "")


def _source(spdx_id: str, origin: Origin) -> Package:
    return Package(
        spdx_id=spdx_id,
        name=origin.file,
        download_location=_url(origin.url) or SpdxNoAssertion(),
        files_analyzed=False,
        checksums=_sha256(origin.sha256),
        external_references=_purl(origin.purl),
        primary_package_purpose=PackagePurpose.SOURCE,
    )


def _part(spdx_id: str, inner: Carried) -> Package:
    return Package(
        spdx_id=spdx_id,
        name=inner.name,
        version=inner.version or None,
        file_name=inner.file or None,
        download_location=SpdxNoAssertion(),
        files_analyzed=False,
        license_declared=_license(inner.license),
        comment=f"told by {inner.told_by}",
        external_references=_purl(inner.purl),
        primary_package_purpose=PackagePurpose.LIBRARY,
    )


def _id(*words: str) -> str:
    """An SPDX id: letters for people, and a hash of all that tells it apart."""
    first = re.sub(r"[^A-Za-z0-9.-]+", "-", "-".join(words[:2]))
    if len(words) == 2:
        return f"SPDXRef-{first}"
    return f"SPDXRef-{first}-{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:16]}"


def _url(text: str) -> str | None:
    """The address, if SPDX takes it for one."""
    return None if validate_url(text) else text


def _sha256(value: str) -> list[Checksum]:
    return [Checksum(ChecksumAlgorithm.SHA256, value)]


def _purl(purl: str) -> list[ExternalPackageRef]:
    kind = ExternalPackageRefCategory.PACKAGE_MANAGER
    return [ExternalPackageRef(kind, "purl", purl)] if purl else []


def _license(expression: str) -> LicenseExpression | SpdxNoAssertion:
    return licensing().parse(expression) if expression else SpdxNoAssertion()


def _extracted(components: list[Component]) -> list[ExtractedLicensingInfo]:
    """The texts of licences that SPDX has no name for: those of the packages that name them."""
    texts: dict[str, str] = {}
    for component in components:
        for name in re.findall(r"LicenseRef-[A-Za-z0-9.-]+", component.license):
            texts.setdefault(name, "\n".join(component.texts.values()) or component.homepage)
    return [ExtractedLicensingInfo(name, text, name) for name, text in sorted(texts.items())]
