"""More elements, and more bytes, than 32 bits can count."""

from __future__ import annotations

import ddl
import numpy as np

ddl.init()
COUNT = 2**31 + 1001
RANK, SIZE = ddl.rank(), ddl.size()


def all_are(x: np.ndarray, value: float) -> bool:
    step = 1 << 26
    bits = x.view(np.uint16)  # compared much faster than halves
    wanted = np.float16(value).view(np.uint16)
    return all((bits[i : i + step] == wanted).all() for i in range(0, COUNT, step))


x = np.full(COUNT, RANK + 1, np.float16)
x[-1] = 5
ddl.allreduce_(x)
assert x[-1] == 5 * SIZE
x[-1] = SIZE * (SIZE + 1) // 2
assert all_are(x, SIZE * (SIZE + 1) // 2)

x.fill(RANK + 7)
ddl.broadcast(x, root=SIZE - 1)
assert all_are(x, SIZE + 6)
