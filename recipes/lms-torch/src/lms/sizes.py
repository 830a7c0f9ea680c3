"""Sizes in bytes, as people write them."""

from __future__ import annotations

import re

from lms.errors import LimitError

_UNITS = {"": 1, "b": 1} | {
    f"{letter}{suffix}": base**power
    for power, letter in enumerate("kmgt", 1)
    for suffix, base in (("", 1024), ("b", 1000), ("ib", 1024))
}

#: Storages of fewer bytes stay where they are: their copies would cost more than they free.
DEFAULT_SMALLEST = "1MiB"

#: The share of a card's memory that is the limit when none is given: others are there too.
DEFAULT_SHARE = 0.95

#: The share of the limit that plans use: the rest is for fragmentation in torch's allocator.
PLANNED_SHARE = 0.94

#: A type for sizes that users give: bytes, or text with a unit.
Size = int | float | str

#: Bytes of a piece of memory from torch's allocator for CUDA.
_PIECE_BYTES = 512


def parse_size(size: Size, name: str = "limit") -> int:
    """Bytes of `12 * 2**30`, "12GiB", "12 GB" (decimal), "500m" (binary) ...

    Raises:
        LimitError: it is no size, or not above zero.
    """
    if isinstance(size, str):
        found = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*([a-zA-Z]*)\s*", size)
        if not found or found[2].lower() not in _UNITS:
            raise LimitError(f'{name} {size!r} is no size in bytes; write for example "12GiB"')
        nbytes = float(found[1]) * _UNITS[found[2].lower()]
    elif isinstance(size, bool) or not isinstance(size, int | float):
        raise LimitError(
            f'{name} must be a number of bytes or text such as "12GiB", not {type(size).__name__}'
        )
    else:
        nbytes = size
    if not 1 <= nbytes < 2**63:
        raise LimitError(f"{name} must be at least one byte and below 2^63, not {nbytes:g}")
    return int(nbytes)


def size_text(size: float) -> str:
    """`size` in bytes for people: three digits and a binary unit."""
    value, sign = abs(float(size)), "-" if size < 0 else ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1000:
            return f"{sign}{value:.3g} {unit}"
        value /= 1024
    return f"{sign}{value:.4g} TiB"


def allocated_size(nbytes: int) -> int:
    """Bytes that `nbytes` take of a device's memory: torch's allocator gives whole pieces."""
    return -(-nbytes // _PIECE_BYTES) * _PIECE_BYTES
