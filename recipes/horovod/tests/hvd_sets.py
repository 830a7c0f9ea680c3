"""The process sets that every run begins with: the even ranks and the odd ones."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hvd_harness import SIZE

EVEN = list(range(0, SIZE, 2))
ODD = list(range(1, SIZE, 2))
STATIC: dict[str, Any] = {}


def static(hvd: ModuleType) -> list[Any]:
    """Process sets for hvd.init(); one of all ranks would be the global one."""
    if SIZE > 1:
        STATIC.update(even=hvd.ProcessSet(EVEN), odd=hvd.ProcessSet(ODD))
    return list(STATIC.values())
