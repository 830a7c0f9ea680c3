"""JSON that others wrote: what would take all of the stack or of the memory is no JSON to us."""

from __future__ import annotations

import json
from typing import Any

#: Of one document: the index of a channel of 20,000 packages has 20 MB.
LONGEST = 256 << 20


def load(text: str | bytes, longest: int = LONGEST) -> Any:
    """The one document in `text`.

    Args:
        text: UTF-8 where it is bytes.
        longest: bytes or characters.

    Raises:
        ValueError: not JSON, too long, or nested too deep.
    """
    if len(text) > longest:
        raise ValueError(f"longer than {longest} bytes")
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
