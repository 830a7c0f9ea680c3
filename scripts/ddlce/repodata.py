"""Reading a subdir's index, which another program may have written, and which may be damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ddlce import jsontext
from ddlce.errors import SourceError


def read_records(index: Path) -> dict[str, dict[str, Any]]:
    """File name → record of each package that a repodata.json names; {} where there is none.

    Raises:
        SourceError: it is no index; names the file.
    """
    try:
        data = jsontext.load(index.read_bytes())
        found = {**data.get("packages", {}), **data.get("packages.conda", {})}
        if all(isinstance(record.get("name"), str) for record in found.values()):
            return found
        reason = "a package without a name"
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        reason = str(error)
    raise SourceError(
        f"{index}: not the index of a channel: {reason}",
        "make the index anew: ddlce index; of another channel, tell whoever keeps it",
    )
