"""Where the packages of a release come from: a signed statement for each, a line of one file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ddlce.audit.facts import read_metadata
from ddlce.cache.statement import provenance, subject
from ddlce.model.envlock import EnvLock

if TYPE_CHECKING:
    from securesystemslib.signer import CryptoSigner

#: The end of the file's name, as in-toto has it.
STATEMENTS = ".intoto.jsonl"


def statements(lock: EnvLock, files: Mapping[str, Path], signers: Sequence[CryptoSigner]) -> str:
    """State of each package of a lock which parts its digest has.

    Args:
        lock: the release.
        files: name → file of its packages.
        signers: the release keys.

    Returns:
        An envelope (DSSE) on each line. A package that says nothing of its digest has none.
    """
    lines = []
    for package in lock.packages:
        said = read_metadata(files[package.file]).get("ddl-ce", {})
        if "digest" not in said:
            continue
        name = f"{package.subdir}/{package.file}"
        external = {"recipe": str(said["recipe"]), "platform": package.subdir}
        envelope = provenance(
            [subject(name, package.sha256, package.size)],
            *(external, {"digest": said["digest"]}, said["inputs"], signers),
        )
        lines.append(json.dumps(envelope.to_dict(), sort_keys=True) + "\n")
    return "".join(lines)
