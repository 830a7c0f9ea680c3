"""Operations that move data and leave it as it is: broadcast, allgather, alltoall, objects."""

from __future__ import annotations

import numpy as np
from hvd_frames import Frame
from hvd_harness import RANK, RANKS, SHAPES, SIZE, case, given, same


def typed(array: np.ndarray, dtype: str) -> np.ndarray:
    """As a tensor of the type holds it: bool keeps only whether a number is 0."""
    return (array != 0).astype(np.float64) if dtype == "bool" else array


def mixed(rank: int, *shape: int, salt: int = 0) -> np.ndarray:
    """Numbers in [0, 3), so that bool has both values."""
    return given(rank, *shape, salt=salt) - 1


@case
def broadcast(f: Frame) -> None:
    for root in RANKS:
        for dtype in f.moved:
            for shape in SHAPES[:4]:
                name = f"{root}.{dtype}.{len(shape)}.{shape[0] if shape else 0}"
                out = f.call("broadcast", name, mixed(RANK, *shape), dtype, root_rank=root)
                same(out, typed(mixed(root, *shape), dtype), name)


@case
def broadcast_of_much_and_of_nothing(f: Frame) -> None:
    for count in (0, 1_000_003):
        out = f.call("broadcast", str(count), given(RANK, count), root_rank=SIZE - 1)
        same(out, given(SIZE - 1, count), count)


@case
def allgather(f: Frame) -> None:
    for dtype in f.moved:
        for shape in ((1,), (17,), (3, 5, 7)):
            name = f"{dtype}.{len(shape)}.{shape[0]}"
            out = f.call("allgather", name, mixed(RANK, *shape), dtype)
            same(out, typed(np.concatenate([mixed(r, *shape) for r in RANKS]), dtype), name)


@case
def allgather_of_other_numbers_of_rows(f: Frame) -> None:
    for dtype in f.moved:
        out = f.call("allgather", dtype, mixed(RANK, 3 * RANK + 1, 4), dtype)
        expected = np.concatenate([mixed(r, 3 * r + 1, 4) for r in RANKS])
        same(out, typed(expected, dtype), dtype)
    for turn in range(3):  # by one name, so that a cached response would be a wrong one
        out = f.call("allgather", "x", given(RANK, turn + RANK, 2))
        same(out, np.concatenate([given(r, turn + r, 2) for r in RANKS]), turn)


@case
def allgather_of_no_rows(f: Frame) -> None:
    """First from one rank only, then from all."""
    out = f.call("allgather", "some", given(RANK, 0 if RANK == 0 else 2, 3))
    same(out, np.concatenate([given(r, 0 if r == 0 else 2, 3) for r in RANKS]))
    out = f.call("allgather", "none", np.zeros((0, 3)))
    same(out, np.zeros((0, 3)))


@case
def grouped_allgather(f: Frame) -> None:
    for dtype in f.moved[::2]:
        values = [mixed(RANK, RANK + 1, 2), mixed(RANK, 5), mixed(RANK, 2 * (SIZE - RANK), 3)]
        outputs = f.call("grouped_allgather", dtype, values, dtype)
        expected = [
            np.concatenate([mixed(r, r + 1, 2) for r in RANKS]),
            np.concatenate([mixed(r, 5) for r in RANKS]),
            np.concatenate([mixed(r, 2 * (SIZE - r), 3) for r in RANKS]),
        ]
        for i, out in enumerate(outputs):
            same(out, typed(expected[i], dtype), (dtype, i))


@case
def alltoall_of_equal_parts(f: Frame) -> None:
    """Without splits every rank gets an equal part of everyone's rows."""
    for dtype in f.moved:
        out = f.call("alltoall", dtype, mixed(RANK, 2 * SIZE, 3), dtype)
        parts = [mixed(r, 2 * SIZE, 3)[2 * RANK : 2 * RANK + 2] for r in RANKS]
        same(out, typed(np.concatenate(parts), dtype), dtype)


@case
def alltoall_of_unequal_parts(f: Frame) -> None:
    """Rank a gives a + b rows to rank b: none from 0 to 0."""
    for dtype in f.moved:
        splits = [RANK + other for other in RANKS]
        parts = [typed(np.full((RANK + b, 2), 5.0 * RANK + b), dtype) for b in RANKS]
        out, received = f.alltoall(dtype, np.concatenate(parts), splits, dtype)
        expected = [typed(np.full((a + RANK, 2), 5.0 * a + RANK), dtype) for a in RANKS]
        same(out, np.concatenate(expected), dtype)
        assert received == [a + RANK for a in RANKS], received


@case
def alltoall_where_one_rank_gets_everything(f: Frame) -> None:
    splits = [4 if other == SIZE - 1 else 0 for other in RANKS]
    out, received = f.alltoall("one", given(RANK, 4, 3), splits)
    last = RANK == SIZE - 1
    everything = np.concatenate([given(r, 4, 3) for r in RANKS])
    same(out, everything if last else np.zeros((0, 3)))
    assert received == [4 if last else 0 for _ in RANKS], received
    out, received = f.alltoall("nothing", np.zeros((0, 3)), [0] * SIZE)
    same(out, np.zeros((0, 3)))
    assert received == [0] * SIZE, received


@case
def alltoall_of_one_rank_s_rows(f: Frame) -> None:
    """Rank 0 has rows for everyone, the others have none at all."""
    count = 3 if RANK == 0 else 0
    out, received = f.alltoall("x", given(RANK, count * SIZE, 2), [count] * SIZE)
    same(out, given(0, 3 * SIZE, 2)[3 * RANK : 3 * RANK + 3])
    assert received == [3, *[0] * (SIZE - 1)], received


@case
def broadcast_object(f: Frame) -> None:
    for root in RANKS:
        mine = {"rank": RANK, "text": "x" * RANK, "nested": [(RANK,), None]}
        found = f.hvd.broadcast_object(mine, root, name=f.name(str(root)))
        assert found == {"rank": root, "text": "x" * root, "nested": [(root,), None]}, found


@case
def allgather_object(f: Frame) -> None:
    found = f.hvd.allgather_object({"rank": RANK, "text": "x" * 100 * RANK}, name=f.name("x"))
    assert found == [{"rank": r, "text": "x" * 100 * r} for r in RANKS], found
