"""What a cache says of the packages of one digest, signed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ddlce import __version__, jsontext
from ddlce.files import sha256_file
from ddlce.plan import Step

if TYPE_CHECKING:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner, Key

PAYLOAD = "application/vnd.in-toto+json"
STATEMENT, PROVENANCE = "https://in-toto.io/Statement/v1", "https://slsa.dev/provenance/v1"
PROJECT = "https://github.com/ddl-ce/ddl-ce"

#: Bytes of a statement at most.
LARGEST = 1 << 20

_SHA256 = re.compile(r"[x-]?([0-9a-f]{64})")


class Refused(Exception):
    """A cache's entry is not to be trusted; says why."""


@dataclass(frozen=True)
class File:
    """A package that a statement names.

    Attributes:
        sha256: in hex.
        size: in bytes.
    """

    sha256: str
    size: int


def statement_path(digest: str) -> str:
    """Where the statement of a digest is in a cache."""
    return f"statements/{digest}.json"


def make_statement(
    step: Step, store: Path, seconds: float, signers: Sequence[CryptoSigner]
) -> bytes:
    """State what was built.

    Args:
        seconds: that its build took; 0 where that is not known.
        signers: the builder's keys.
    """
    subjects = []
    for output in step.outputs:
        path = store / output.subdir / output.filename
        name = f"{output.subdir}/{output.filename}"
        subjects.append(subject(name, sha256_file(path), path.stat().st_size))
    external = {"recipe": step.recipe.name, "platform": step.subdir}
    internal = {"digest": step.digest, "seconds": seconds}
    envelope = provenance(subjects, external, internal, step.parts, signers)
    return json.dumps(envelope.to_dict(), indent=1, sort_keys=True).encode() + b"\n"


def subject(name: str, sha256: str, size: int) -> dict[str, Any]:
    """A package that a statement is about, by its path in the channel."""
    return {"name": name, "digest": {"sha256": sha256}, "annotations": {"size": size}}


def provenance(
    subjects: Sequence[Mapping[str, Any]],
    external: Mapping[str, str],
    internal: Mapping[str, object],
    parts: Mapping[str, str],
    signers: Sequence[CryptoSigner],
) -> Envelope:
    """A signed statement on where packages come from.

    Args:
        subjects: the packages.
        external: recipe and platform.
        internal: the digest, and what else is known of the build.
        parts: the named parts of the digest.
        signers: who states it.
    """
    from securesystemslib.dsse import Envelope

    statement = {
        "_type": STATEMENT,
        "subject": subjects,
        "predicateType": PROVENANCE,
        "predicate": {
            "buildDefinition": {
                "buildType": f"{PROJECT}/recipe@v1",
                "externalParameters": external,
                "internalParameters": internal,
                "resolvedDependencies": [_part(*each) for each in sorted(parts.items())],
            },
            "runDetails": {"builder": {"id": f"{PROJECT}/ddlce@{__version__}"}},
        },
    }
    envelope = Envelope(json.dumps(statement, sort_keys=True).encode(), PAYLOAD, {})
    for signer in signers:
        envelope.sign(signer)
    return envelope


def _part(name: str, value: str) -> dict[str, Any]:
    """A named part of a digest as a resource: by its sha256, or by what it says."""
    if found := _SHA256.fullmatch(value):
        return {"name": name, "digest": {"sha256": found[1]}}
    return {"name": name, "annotations": {"value": value}}


def check_statement(data: bytes, step: Step, keys: Sequence[Key]) -> tuple[dict[str, File], float]:
    """Make sure that a statement is about this step, and signed by one of these keys.

    Returns:
        Path in the cache → package; and the seconds that the build took.

    Raises:
        Refused: it is not.
    """
    from securesystemslib.dsse import Envelope
    from securesystemslib.exceptions import VerificationError

    try:
        envelope = Envelope.from_dict(_mapping(jsontext.load(data)))
        envelope.verify(list(keys), 1)
    except VerificationError as error:
        raise Refused("it is not signed by a trusted key") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refused("its statement is damaged") from error
    try:
        if envelope.payload_type != PAYLOAD:
            raise Refused(f"its statement is a {envelope.payload_type}")
        said = _mapping(jsontext.load(envelope.payload))
        definition = said["predicate"]["buildDefinition"]
        internal, external = definition["internalParameters"], definition["externalParameters"]
        of = (external["recipe"], external["platform"], internal["digest"])
        files = {
            str(subject["name"]): File(
                str(subject["digest"]["sha256"]), int(subject["annotations"]["size"])
            )
            for subject in said["subject"]
        }
        seconds = float(internal["seconds"])
    except (ValueError, KeyError, TypeError) as error:
        raise Refused("its statement is no provenance of ours") from error
    if of != (step.recipe.name, step.subdir, step.digest):
        raise Refused(f"its statement is about {of[0]} for {of[1]} with the digest {of[2]}")
    wanted = {f"{output.subdir}/{output.filename}" for output in step.outputs}
    if files.keys() != wanted:
        raise Refused("its statement is about other packages")
    return files, seconds


def _mapping(data: object) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise ValueError("no mapping")
    return dict(data)
