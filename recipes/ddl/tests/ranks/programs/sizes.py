"""Sizes that differ between sender and receiver: told by all, and life goes on."""

from __future__ import annotations

from functools import partial

import ddl
import numpy as np
from helpers import error_of

ddl.init("-timeout 100")  # only a hang reaches it
RANK, SIZE = ddl.rank(), ddl.size()

# To rank b, rank a sends a + 2 b rows; the exceptions are (sender, receiver, rows expected).
WRONG = [
    *[(sender, receiver, 0) for sender in (0, SIZE - 1) for receiver in (0, SIZE - 1)],
    (0, SIZE - 1, 1000),
    (SIZE - 1, 0, 3 * SIZE),
]


def rows(sender: int, receiver: int) -> int:
    return sender + 2 * receiver + 1


def exchange(wrong: tuple[int, int, int] | None) -> np.ndarray:
    sent = [rows(RANK, other) for other in range(SIZE)]
    expected = [rows(other, RANK) for other in range(SIZE)]
    if wrong is not None and wrong[1] == RANK:
        expected[wrong[0]] = wrong[2]
    x = np.full(sum(sent), RANK, np.int64)
    got: np.ndarray = ddl.alltoallv(x, sent, expected)
    return got


def check() -> None:
    got = exchange(None)
    expected = [np.full(rows(other, RANK), other) for other in range(SIZE)]
    np.testing.assert_array_equal(got, np.concatenate(expected))
    assert ddl.allreduce(np.ones(1))[0] == SIZE


check()
for wrong in WRONG:
    sender, receiver, expected = wrong
    told = error_of(partial(exchange, wrong))
    assert told.startswith("MISMATCH: "), told
    assert f"rank {sender} (host {ddl.host_name(sender)}) sends" in told, told
    assert f"sends {8 * rows(sender, receiver)} bytes to rank {receiver} (host" in told, told
    assert told.endswith(f"which expects {8 * expected}"), told
    check()
print("ended well", flush=True)
