"""Asynchronous calls that differ between ranks: an error for these everywhere, not for the others.

Every case starts several operations and says for each what its error tells; "" for none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
LAST = RANK == SIZE - 1
BIG = 20_000  # more than is fused

Started = list[ddl.Handle]


def reduce(count: int, dtype: str = "f4", op: ddl.Op = "sum") -> ddl.Handle:
    return ddl.allreduce_async(np.ones(count, dtype), op)


def error_of(call: Callable[[], object]) -> str:
    """The text of what the call raises; "" when it raises nothing."""
    try:
        call()
    except ddl.DDLError as error:
        return f"{error.code.name}: {error}"
    return ""


def blocking(call: Callable[[], object]) -> ddl.Handle:
    """Make the call on the last rank only; the others are asynchronous there."""
    text = error_of(call)
    assert re.match("MISMATCH: .* called allreduce.8 x float32, max.$", text), text
    return ddl.barrier_async()  # matched by another one of the other ranks


CASES: dict[str, tuple[Callable[[], Started], list[str]]] = {
    "count of the first": (
        lambda: [reduce(8 if LAST else 7), reduce(3)],
        ["7 x float32|8 x float32", ""],
    ),
    "order, though the sums are the same": (
        lambda: [reduce(n) for n in ((5, 4, 3, 6) if LAST else (5, 3, 4, 6))],
        ["", "3 x float32|4 x float32", "4 x float32|3 x float32", ""],
    ),
    "type": (
        lambda: [reduce(4), reduce(8, "f4" if LAST else "i4"), reduce(9)],
        ["", "8 x int32|8 x float32", ""],
    ),
    "operation": (
        lambda: [reduce(4), reduce(8, op="min" if LAST else "max"), reduce(9)],
        ["", "float32, max|float32, min", ""],
    ),
    "small and large": (
        lambda: [reduce(4), reduce(BIG if LAST else 8), reduce(9)],
        ["", "8 x float32|20000 x float32", ""],
    ),
    "large ones": (
        lambda: [reduce(BIG + LAST), reduce(BIG)],
        ["20000 x float32|20001 x float32", ""],
    ),
    "collective": (
        lambda: [reduce(4), ddl.barrier_async() if LAST else reduce(8), reduce(9)],
        ["", "iallreduce(8 x float32|barrier()", ""],
    ),
    "root": (
        lambda: [reduce(4), ddl.broadcast_async(np.ones(8), SIZE - 1 if LAST else 0), reduce(9)],
        ["", f"root 0|root {SIZE - 1}", ""],
    ),
    "blocking and asynchronous": (
        lambda: [
            reduce(4),
            blocking(lambda: ddl.allreduce(np.ones(8, "f4"), "max"))
            if LAST
            else reduce(8, op="max"),
            *([] if LAST else [ddl.barrier_async()]),
            reduce(9),
        ],
        ["", *([] if LAST else ["iallreduce(8 x float32, max)|called allreduce(8"]), "", ""],
    ),
}


def outcome(handle: ddl.Handle) -> str:
    """What wait raises, and raises again."""
    text = error_of(handle.wait)
    assert text == error_of(handle.wait)
    assert text == "" or text.startswith("MISMATCH: "), text
    assert handle.done()
    return text


for name, (start, expected) in CASES.items():
    for _ in range(2):
        errors = [outcome(handle) for handle in start()]
        assert len(errors) == len(expected), (name, errors)
        for error, words in zip(errors, expected, strict=True):
            where = (name, words, errors)
            assert (error == "") == (words == ""), where
            assert all(word in error for word in words.split("|")), where
            if words:
                assert f"rank {SIZE - 1} (host {ddl.host_name(SIZE - 1)})" in error, where
        for count in (3, BIG):
            assert (ddl.allreduce(np.ones(count)) == SIZE).all(), name
            assert (reduce(count).wait() == SIZE).all(), name
