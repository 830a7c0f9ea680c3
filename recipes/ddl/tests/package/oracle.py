"""Every collective against what NumPy computes, bit by bit, on the ranks that this runs on."""

from __future__ import annotations

import ddl
import numpy as np

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
TYPES = ("float32", "float64", "float16", "int32", "int64")
# Nothing, one, a small message, one that is no multiple of anything, and several chunks.
COUNTS = (0, 1, 1000, 4097, 300_001)


def data(rank: int, count: int, dtype: str) -> np.ndarray:
    """Small whole numbers: their sums and products are exact in every type."""
    return (np.arange(count) % 3 + rank % 2 + 1).astype(dtype)


for dtype in TYPES:
    for count in COUNTS:
        every = np.stack([data(rank, count, dtype) for rank in range(SIZE)])
        mine = data(RANK, count, dtype)
        expected = {
            "sum": every.sum(0, dtype=dtype),
            "prod": every.prod(0, dtype=dtype),
            "min": every.min(0),
            "max": every.max(0),
        }
        for op, result in expected.items():
            np.testing.assert_array_equal(ddl.allreduce(mine, op), result, f"{dtype} {count} {op}")
        np.testing.assert_array_equal(ddl.allgather(mine), every)
        blocks = np.tile(mine, SIZE)
        np.testing.assert_array_equal(ddl.reduce_scatter(blocks), expected["sum"])
        np.testing.assert_array_equal(ddl.alltoall(blocks), every.reshape(-1))
        for root in range(SIZE):
            gathered = ddl.gather(mine, root)
            assert (gathered is None) == (root != RANK)
            if gathered is not None:
                np.testing.assert_array_equal(gathered, every)
            np.testing.assert_array_equal(ddl.broadcast(mine.copy(), root), every[root])
ddl.barrier()
ddl.finalize()
