"""Debian's order of versions (Debian policy, 5.6.12), on machines that have no dpkg.

The package python-debian has it, under the GPL; ddlce is under the Apache licence.
"""

from __future__ import annotations

import re
from itertools import zip_longest

#: Runs of other characters and of digits, in turn.
RUNS = re.compile(r"(\D*)(\d*)")


def compare(one: str, other: str) -> int:
    """Less than, equal to or greater than 0, as `one` is older, the same or newer."""
    for mine, theirs in zip(_parts(one), _parts(other), strict=True):
        if order := _compare_runs(mine, theirs):
            return order
    return 0


def _parts(version: str) -> tuple[str, str, str]:
    """Epoch, upstream's version, Debian's revision."""
    epoch, colon, rest = version.partition(":")
    epoch, rest = (epoch, rest) if colon else ("0", version)
    name, dash, revision = rest.rpartition("-")
    return (epoch, name, revision) if dash else (epoch, rest, "0")


def _compare_runs(one: str, other: str) -> int:
    for (word, number), (word2, number2) in zip_longest(
        RUNS.findall(one), RUNS.findall(other), fillvalue=("", "")
    ):
        mine, theirs = _weights(word), _weights(word2)
        if mine != theirs:
            return 1 if mine > theirs else -1
        if int(number or 0) != int(number2 or 0):
            return 1 if int(number or 0) > int(number2 or 0) else -1
    return 0


def _weights(word: str) -> list[int]:
    """A tilde before the end, the end before letters, letters before the rest."""
    return [*(-1 if c == "~" else ord(c) if c.isalpha() else ord(c) + 256 for c in word), 0]
