"""gather, scatter, alltoall, alltoallv, send and recv of NumPy's arrays, or torch's ("torch")."""

from __future__ import annotations

import sys
from typing import Any

import ddl
import numpy as np
from helpers import error_of

ddl.init()
RANK, SIZE = ddl.rank(), ddl.size()
TYPES = ("float32", "int64", "uint8", "bool", "complex64")


def made(source: int, dest: int, shape: tuple[int, ...], dtype: str = "int64") -> np.ndarray:
    """What `source` has for `dest`."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 7 + 31 * source + 3 * dest) % 113).astype(dtype).reshape(shape)


def own(x: np.ndarray) -> Any:
    if "torch" in sys.argv:
        import torch

        return torch.from_numpy(x)
    return x


def same(x: Any, expected: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(x), expected)
    assert tuple(x.shape) == expected.shape
    assert type(x) is type(own(expected))


def check_rooted(group: ddl.Group | None, rank: int, size: int) -> None:
    for shape in ((), (0,), (3, 5), (70_000,)):
        for dtype in TYPES:
            for root in range(size):
                every = np.stack([made(r, root, shape, dtype) for r in range(size)])
                got = ddl.gather(own(made(rank, root, shape, dtype)), root, group=group)
                if rank == root:
                    same(got, every)
                else:
                    assert got is None
                room = own(np.zeros(shape, dtype))
                parts = own(np.stack([made(root, r, shape, dtype) for r in range(size)]))
                given = ddl.scatter(parts if rank == root else None, room, root, group)
                assert given is room
                same(room, made(root, rank, shape, dtype))
    room = own(np.zeros((size, 4), np.int64)) if rank == 0 else None
    assert ddl.gather(own(made(rank, 0, (4,))), out=room, group=group) is room


def check_alltoall(group: ddl.Group | None, rank: int, size: int) -> None:
    for shape in ((0,), (1,), (2, 3), (30_000,)):
        for dtype in TYPES:
            blocks = [made(rank, r, shape, dtype) for r in range(size)]
            expected = np.concatenate([made(r, rank, shape, dtype) for r in range(size)])
            same(ddl.alltoall(own(np.concatenate(blocks)), group=group), expected)
            room = own(np.zeros_like(expected))
            assert ddl.alltoall(own(np.concatenate(blocks)), room, group) is room
            same(room, expected)


def check_alltoallv(group: ddl.Group | None, rank: int, size: int) -> None:
    """From a to b go a + 2 b rows; then none but from rank 0 to the last."""
    for rows in (lambda a, b: a + 2 * b, lambda a, b: 5 if (a, b) == (0, size - 1) else 0):
        sent = [rows(rank, r) for r in range(size)]
        received = np.array([rows(r, rank) for r in range(size)])
        for width in ((), (3,), (0,)):
            blocks = [made(rank, r, (sent[r], *width), "float32") for r in range(size)]
            expected = np.concatenate(
                [made(r, rank, (int(received[r]), *width), "float32") for r in range(size)]
            )
            x = own(np.concatenate(blocks))
            same(ddl.alltoallv(x, sent, received, group=group), expected)
            room = own(np.zeros_like(expected))
            assert ddl.alltoallv(x, sent, received, room, group) is room
            same(room, expected)


def check_messages(group: ddl.Group | None, rank: int, size: int) -> None:
    """Round the ring, with two tags whose messages are fetched the other way round."""
    after, before = (rank + 1) % size, (rank - 1) % size
    if size > 1 and rank % 2 == 0:
        for tag in (1, 2):
            ddl.send(own(made(rank, tag, (50, 2))), after, tag, group)
    if size > 1 and before % 2 == 0:
        for tag in (2, 1):
            room = own(np.zeros((50, 2), np.int64))
            assert ddl.recv(room, before, tag, group) is room
            same(room, made(before, tag, (50, 2)))
    ddl.barrier(group)


def check_mismatches() -> None:
    """The ranks do not agree: an error on all, and they go on."""
    x = own(np.ones(2 * SIZE, np.float32))
    for call in (
        lambda: ddl.gather(x[: 1 + RANK % 2]),
        lambda: ddl.gather(x, root=RANK % 2),
        lambda: ddl.alltoall(x[: SIZE * (1 + RANK % 2)]),
    ):
        assert error_of(call).startswith("MISMATCH"), error_of(call)
        ddl.barrier()
    if RANK == 0:
        ddl.send(x, 1)
    if RANK == 1:
        text = error_of(lambda: ddl.recv(x[1:], 0))
        assert text.startswith("MISMATCH"), text
        assert "rank 0" in text
    ddl.barrier()


groups: list[tuple[ddl.Group | None, int, int]] = [(None, RANK, SIZE)]
backwards = ddl.new_group(list(range(SIZE))[::-1])
assert backwards is not None
groups.append((backwards, backwards.rank, SIZE))
for place in groups:
    check_rooted(*place)
    check_alltoall(*place)
    check_alltoallv(*place)
    check_messages(*place)
if SIZE > 1:
    check_mismatches()
