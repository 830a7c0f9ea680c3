"""Small collectives between hosts, whose messages a test counts: `small.py COLLECTIVE BYTES`."""

import sys

import ddl
import numpy as np

CALLS = 5


def main() -> None:
    """Call it, and check each result."""
    ddl.init()
    name, nbytes = sys.argv[1], int(sys.argv[2])
    rank, size = ddl.rank(), ddl.size()
    x = np.full(nbytes // 4, rank + 1, np.float32)
    total = size * (size + 1) / 2
    for call in range(CALLS):
        root = call % size
        if name == "allreduce":
            assert (ddl.allreduce(x) == total).all()
        elif name == "allreduce_async":
            assert (ddl.allreduce_async(x).wait() == total).all()
        elif name == "reduce":
            result = ddl.reduce(x, root)
            assert (result == total).all() if rank == root else result is None
        elif name == "broadcast":
            assert (ddl.broadcast(x.copy(), root) == root + 1).all()
        else:
            assert (ddl.allgather(x) == np.arange(1, size + 1)[:, None]).all()
    ddl.finalize()


if __name__ == "__main__":
    main()
