"""Writes an SBOM as CycloneDX 1.6, with the library of its authors."""

from __future__ import annotations

from cyclonedx.model import (
    AttachedText,
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    Property,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component as Part
from cyclonedx.model.component import ComponentType, Diff, Patch, PatchClassification, Pedigree
from cyclonedx.model.component_evidence import ComponentEvidence, Occurrence
from cyclonedx.model.issue import IssueClassification, IssueType
from cyclonedx.model.license import DisjunctiveLicense, License, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.spdx import fixup_id
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from ddlce.errors import WorkError
from ddlce.sbom import model
from ddlce.sbom.release import Release


def to_cyclonedx(release: Release, components: list[model.Component]) -> str:
    """The SBOM's text; the same for the same release.

    Raises:
        WorkError: the text is not valid.
    """
    bom = Bom(serial_number=release.number)
    bom.metadata.timestamp = release.time
    top = Part(
        name=release.env,
        version=release.version,
        type=ComponentType.APPLICATION,
        bom_ref=release.name,
        properties=[
            Property(name="ddl-ce:platform", value=release.platform),
            Property(name="ddl-ce:lock", value=release.digest),
        ],
    )
    bom.metadata.component = top
    parts = {component.name: _part(component) for component in components}
    bom.components.update(parts.values())
    bom.register_dependency(top, parts.values())
    for component in components:
        bom.register_dependency(parts[component.name], [parts[name] for name in component.depends])
    text = JsonV1Dot6(bom).output_as_string(indent=1) + "\n"
    if problem := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise WorkError(f"the SBOM of {release.name} is no CycloneDX: {problem}", "report it")
    return text


def _part(component: model.Component) -> Part:
    return Part(
        name=component.name,
        version=component.version,
        type=ComponentType.LIBRARY,
        bom_ref=component.purl,
        purl=PackageURL.from_string(component.purl),
        description=component.summary or None,
        hashes=_sha256(component.sha256),
        licenses=_licenses(component.license),
        external_references=_references(ExternalReferenceType.WEBSITE, component.homepage),
        pedigree=_pedigree(component),
        components=[_carried(component, inner) for inner in component.carried],
        evidence=_evidence(component),
    )


def _sha256(value: str) -> list[HashType]:
    return [HashType(alg=HashAlgorithm.SHA_256, content=value)]


def _licenses(expression: str) -> list[License]:
    """An SPDX expression; the library takes one with a LicenseRef for mere words."""
    if not expression:
        return []
    simple = fixup_id(expression)
    return [DisjunctiveLicense(id=simple) if simple else LicenseExpression(expression)]


def _references(kind: ExternalReferenceType, url: str) -> list[ExternalReference]:
    return [ExternalReference(type=kind, url=XsUri(url))] if url else []


def _evidence(component: model.Component) -> ComponentEvidence | None:
    """The texts of licences, and the compiled files."""
    if not component.texts and not component.compiled:
        return None
    return ComponentEvidence(
        licenses=[
            DisjunctiveLicense(name=name, text=AttachedText(content=text))
            for name, text in component.texts.items()
        ],
        # The library sorts occurrences by their references; without one, by chance.
        occurrences=[
            Occurrence(bom_ref=f"{component.purl}#{path}", location=path)
            for path in component.compiled
        ],
    )


def _pedigree(component: model.Component) -> Pedigree | None:
    """The sources, and the patches on them."""
    if not component.origins and not component.patches:
        return None
    ancestors = [
        Part(
            name=origin.file,
            type=ComponentType.FILE,
            bom_ref=f"{component.purl}#source={origin.file}",
            purl=PackageURL.from_string(origin.purl) if origin.purl else None,
            hashes=_sha256(origin.sha256),
            external_references=_references(ExternalReferenceType.DISTRIBUTION, origin.url),
        )
        for origin in component.origins
    ]
    return Pedigree(ancestors=ancestors, patches=[_patch(patch) for patch in component.patches])


def _patch(patch: model.Patch) -> Patch:
    kind = PatchClassification.BACKPORT if patch.backport else PatchClassification.UNOFFICIAL
    return Patch(
        type=kind,
        diff=Diff(url=XsUri(f"{patch.name}#sha256={patch.sha256}" if patch.sha256 else patch.name)),
        resolves=[IssueType(type=IssueClassification.SECURITY, id=hole) for hole in patch.holes],
    )


def _carried(component: model.Component, inner: model.Carried) -> Part:
    key = "#".join((component.purl, inner.told_by, f"{inner.name}@{inner.version}", inner.purl))
    return Part(
        name=inner.name,
        version=inner.version or None,
        type=ComponentType.LIBRARY,
        bom_ref=key,
        purl=PackageURL.from_string(inner.purl) if inner.purl else None,
        licenses=_licenses(inner.license),
        properties=[Property(name="ddl-ce:told-by", value=inner.told_by)],
        evidence=ComponentEvidence(occurrences=[Occurrence(location=inner.file)])
        if inner.file
        else None,
    )
