"""Calls that differ between ranks: the same kind of error everywhere, and life goes on."""

from __future__ import annotations

from collections.abc import Callable

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
LAST = RANK == SIZE - 1
BIG = 100_000

CASES: dict[str, tuple[Callable[[], object], str, str]] = {
    "count": (lambda: ddl.allreduce(np.ones(4 if LAST else 3)), "3 x float64", "4 x float64"),
    "large count": (
        lambda: ddl.allreduce(np.ones(BIG + LAST)),
        "100000 x float64",
        "100001 x float64",
    ),
    "small against large": (
        lambda: ddl.allreduce(np.ones(BIG if LAST else 1)),
        "1 x float64",
        "100000 x float64",
    ),
    "nothing against something": (
        lambda: ddl.allreduce(np.ones(0 if LAST else BIG)),
        "100000 x float64",
        "0 x float64",
    ),
    "type": (lambda: ddl.allreduce(np.ones(8, "f4" if LAST else "i4")), "x int32", "x float32"),
    "operation": (lambda: ddl.allreduce(np.ones(8), "min" if LAST else "max"), "max", "min"),
    "root": (
        lambda: ddl.broadcast(np.ones(8), SIZE - 1 if LAST else 0),
        "root 0",
        f"root {SIZE - 1}",
    ),
    "bytes": (lambda: ddl.allgather(np.ones(9 if LAST else 8)), "64 bytes", "72 bytes"),
    "collective": (
        lambda: ddl.barrier() if LAST else ddl.allreduce(np.ones(8)),
        "allreduce",
        "barrier()",
    ),
    "reduce_scatter": (
        lambda: ddl.reduce_scatter(np.ones(SIZE * (2 if LAST else 1))),
        "reduce_scatter(1 x",
        "reduce_scatter(2 x",
    ),
}


def error_of(call: Callable[[], object]) -> ddl.DDLError | None:
    try:
        call()
    except ddl.DDLError as error:
        return error
    return None


for name, (call, usual, odd) in CASES.items():
    for _ in range(2):
        error = error_of(call)
        assert error is not None, f"{name}: no error on rank {RANK}"
        assert error.code is ddl.Result.MISMATCH, (name, error)
        text = str(error)
        assert usual in text, (name, text)
        assert odd in text, (name, text)
        assert f"rank {SIZE - 1} (host {ddl.host_name(SIZE - 1)})" in text, (name, text)
        for count in (3, BIG):
            assert (ddl.allreduce(np.ones(count)) == SIZE).all(), name
