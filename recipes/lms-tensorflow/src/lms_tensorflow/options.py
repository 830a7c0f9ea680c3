"""The options of LMS. The names are those that TensorFlow's Large Model Support had."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lms_tensorflow.errors import OptionError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("KMGT", 1)}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?|)B?", re.IGNORECASE)

_SLICE = re.compile(r"(?P<level>\d+)|(?P<first>\d*):(?P<end>\d*)")

#: The values of `sync_mode`, and the swaps that the computation then waits for.
SYNC_MODES = {0: "nothing waits", 1: "swap-out", 2: "swap-in", 3: "swap-out and swap-in"}


@dataclass(frozen=True)
class Options:
    """The options that say which tensors move, and how far ahead. LMS chooses for None.

    Distances are in levels: the level of an operation is the length of the longest path to it.

    Args:
        limit: bytes, or text like "12GiB", that the graph may take on the device, its variables
            included.
        swapout_threshold: a use this far after the making of a tensor is served from the host.
        swapin_ahead: how far before its use a tensor comes back.
        swapin_groupby: uses at most this far after the one before them share one swap-in.
        serialization: levels, or slices of them like "10:20", in which operations run one by one.
        serialization_by_size: bytes, or text, after which the next operations wait for those that
            made them.
        sync_mode: 1, the computation waits for swap-outs; 2, for swap-ins; 3, for both.
        min_bytes: smaller tensors stay.
        batch_size: the largest batch, where its dimension is not known before the step runs.

    Raises:
        OptionError: a value that an option cannot have.
    """

    limit: int | str | None = None
    swapout_threshold: int | None = None
    swapin_ahead: int | None = None
    swapin_groupby: int | None = None
    serialization: Sequence[int | str] | None = None
    serialization_by_size: int | str | None = None
    sync_mode: int = 0
    min_bytes: int | str = "64KiB"
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "limit", to_bytes("limit", self.limit, least=1))
        object.__setattr__(self, "min_bytes", to_bytes("min_bytes", self.min_bytes, least=0))
        if self.serialization_by_size is not None:
            size = to_bytes("serialization_by_size", self.serialization_by_size, least=1)
            object.__setattr__(self, "serialization_by_size", size)
        self.serialized(0)
        _check("swapout_threshold", self.swapout_threshold, least=2)
        _check("swapin_ahead", self.swapin_ahead, least=1)
        _check("swapin_groupby", self.swapin_groupby, least=0)
        _check("batch_size", self.batch_size, least=1)
        if type(self.sync_mode) is not int or self.sync_mode not in SYNC_MODES:
            modes = ", ".join(f"{mode} ({what})" for mode, what in SYNC_MODES.items())
            raise OptionError(f"LMS: sync_mode is {self.sync_mode!r}; use one of {modes}")

    @property
    def ordered(self) -> bool:
        """Whether an order of steps was asked for."""
        return self.serialization is not None or self.serialization_by_size is not None

    def serialized(self, levels: int) -> frozenset[int]:
        """The levels of `serialization`, of so many."""
        given = () if self.serialization is None else self.serialization
        found: set[int] = set()
        for one in given if not isinstance(given, str) else (given,):
            parts = _SLICE.fullmatch(str(one).strip())
            if parts is None or isinstance(one, bool):
                raise OptionError(
                    f"LMS: serialization has {one!r}; give a list of levels, or of slices of them "
                    'like "10:20"'
                )
            if parts["level"]:
                found.add(int(parts["level"]))
            else:
                found.update(range(int(parts["first"] or 0), int(parts["end"] or levels)))
        return frozenset(found)

    @property
    def limit_bytes(self) -> int | None:
        """The limit as a number of bytes."""
        return None if self.limit is None else int(self.limit)


def to_bytes(name: str, value: Any, least: int = 0) -> int:
    """Bytes of a number, or of text like "12GiB", "500 MB" or "1.5G"."""
    size = -1
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (found := _SIZE.fullmatch(value.strip())):
        number, unit = found.groups()
        size = round(float(number) * _UNITS[unit[:1].upper() + unit[1:].lower()])
    if size < least:
        raise OptionError(
            f"LMS: {name} is {value!r}; give a number of bytes, at least {least}, "
            'or text like "12GiB" or "500MB"'
        )
    return size


def to_text(size: int) -> str:
    """A number of bytes for people: 1536 is "1.5 KiB"."""
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def _check(name: str, value: Any, least: int) -> None:
    if value is not None and (type(value) is not int or value < least):
        raise OptionError(
            f"LMS: {name} is {value!r}; give a whole number of at least {least}, "
            "or leave it out and LMS chooses"
        )
