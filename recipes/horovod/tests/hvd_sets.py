"""The process sets that every run begins with: the even ranks and the odd ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from hvd_harness import SIZE

EVEN = list(range(0, SIZE, 2))
ODD = list(range(1, SIZE, 2))
STATIC: dict[str, Any] = {}


@contextmanager
def added(hvd: ModuleType, ranks: list[int]) -> Iterator[Any]:
    """A process set of one's own for a while. A static one of the same ranks makes room for it."""
    same = [one for one in STATIC.values() if one.ranks == ranks]
    for one in same:
        assert hvd.remove_process_set(one)
    made = hvd.add_process_set(ranks)
    try:
        yield made
    finally:
        assert hvd.remove_process_set(made)
        for one in same:
            hvd.add_process_set(one)


def static(hvd: ModuleType) -> list[Any]:
    """Process sets for hvd.init(); one of all ranks would be the global one."""
    if SIZE > 1:
        STATIC.update(even=hvd.ProcessSet(EVEN), odd=hvd.ProcessSet(ODD))
    return list(STATIC.values())
