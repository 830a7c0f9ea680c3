"""One collective that moves NBYTES in all, three times; the uplinks' counters before and after.

move.py COLLECTIVE NBYTES COUNTERS FOLDER
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

import ddl
import numpy as np


def main() -> None:
    """Checks every element; the counters go to FOLDER/begin and FOLDER/end."""
    collective, nbytes, counters, folder = sys.argv[1:]
    ddl.init()
    rank, size = ddl.rank(), ddl.size()
    block = int(nbytes) // 4 // size
    everyone = np.arange(block * size, dtype=np.float32)
    mine = everyone[rank * block : (rank + 1) * block]

    def broadcast() -> None:
        data = everyone.copy() if rank == 1 else np.zeros_like(everyone)
        assert (ddl.broadcast(data, root=1) == everyone).all()

    def allgather() -> None:
        assert (ddl.allgather(mine.copy()).ravel() == everyone).all()

    def reduce_scatter() -> None:
        assert (ddl.reduce_scatter(everyone % 512 + rank) == mine % 512 * size + 28).all()

    bodies: dict[str, Callable[[], None]] = {
        "broadcast": broadcast,
        "allgather": allgather,
        "reduce_scatter": reduce_scatter,
    }
    for moment in ("begin", "end"):
        if moment == "end":
            for _ in range(3):
                bodies[collective]()
        ddl.barrier()
        if rank == 0:
            shutil.copyfile(counters, f"{folder}/{moment}")
        ddl.barrier()


if __name__ == "__main__":
    main()
