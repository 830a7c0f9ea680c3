"""Why metadata is refused: one sentence for each way in which it can be wrong."""

from __future__ import annotations

import re

from tuf.api import exceptions as tuf
from tuf.api.serialization import DeserializationError

from ddlce.weberror import innermost

#: What names a file, by which its length and hash are known.
NAMED_BY = {"snapshot": "timestamp.json", "targets": "snapshot.json"}


def sentence(error: Exception, file: str) -> str:
    """Say why a file is refused.

    Args:
        error: of the library.
        file: the last one that was asked for.
    """
    role = re.sub(r"^\d+\.|\.json$", "", file)
    match error:
        case tuf.DownloadLengthMismatchError():
            return f"{file} does not end where it must"
        case tuf.SlowRetrievalError():
            return f"{file} comes too slowly"
        case tuf.DownloadHTTPError(status_code=404):
            return f"there is no {file}"
        case tuf.DownloadHTTPError(status_code=code):
            return f"the server answers {code} for {file}"
        case tuf.DownloadError():
            return f"{file} cannot be read: {_cause(error)}"
        case tuf.ExpiredMetadataError():
            expired = re.search(r"root|timestamp|snapshot|targets", str(error))
            return f"the signature of {expired[0] if expired else role} has expired"
        case tuf.UnsignedMetadataError():
            return f"{file} is not signed by enough of the trusted keys: {error}"
        case tuf.BadVersionNumberError() if role == "root":
            return f"{file} is another root's file: {error}"
        case tuf.BadVersionNumberError():
            return f"{file} is an old one: {error}"
        case tuf.LengthOrHashMismatchError():
            return f"{file} is not the file that {NAMED_BY.get(role, 'the metadata')} names"
        case DeserializationError():
            return f"{file} is no TUF metadata"
        case _:
            return f"{file}: {error}"


def _cause(error: Exception) -> str:
    cause = error.__cause__ or error
    return innermost(getattr(cause, "strerror", None) or cause)
