"""The answer of one check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "missing", "optional"]


@dataclass(frozen=True)
class Check:
    """What one check found.

    Attributes:
        name: what was looked for.
        state: `ok`; `missing`: DDL-CE cannot be built without it; `optional`: it is not there,
            and only what `why` names does not work.
        found: a version, an amount, or what is wrong.
        why: what it is needed for.
        need: `required`, `test`, `optional`, or the platform that it is for.
        packages: the system packages that bring it, by installer (`apt`, `dnf`, `zypper`).
    """

    name: str
    state: State
    found: str
    why: str
    need: str = "optional"
    packages: tuple[tuple[str, str], ...] = ()
