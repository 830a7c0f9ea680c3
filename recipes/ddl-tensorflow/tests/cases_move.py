"""Operations that move data as it is."""

import ddl
import numpy as np
import tensorflow as tf
from harness import given, same
from ranked import RANK, SIZE, case


@case
def broadcast_from_every_root() -> None:
    for root in range(SIZE):
        for dtype in (tf.float32, tf.bool, tf.complex64, tf.uint16, tf.int8):
            same(
                ddl.broadcast(given(RANK, 5, 2, dtype=dtype), root), given(root, 5, 2, dtype=dtype)
            )
    same(ddl.bcast(tf.constant(RANK)), 0)


@case
def broadcast_of_several() -> None:
    first, second = ddl.broadcast_n([given(RANK, 3), given(RANK, 0, 2, dtype=tf.int32)])
    same(first, given(0, 3))
    assert second.shape == (0, 2)
    assert ddl.broadcast_n([]) == []


@case
def allgather_of_even_and_uneven_rows() -> None:
    for rows in (lambda _: 3, lambda rank: rank + 1, lambda rank: 2 * (rank % 2), lambda _: 0):
        for dtype in (tf.float32, tf.bool, tf.int64):
            result = ddl.allgather(given(RANK, rows(RANK), 2, dtype=dtype))
            parts = [given(rank, rows(rank), 2, dtype=dtype).numpy() for rank in range(SIZE)]
            same(result, np.concatenate(parts))


@case
def allgather_in_a_graph_of_unknown_length() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 2])])
    def run(x: tf.Tensor) -> tf.Tensor:
        result = ddl.allgather(x)
        assert result.shape.as_list() == [None, 2]
        return result

    for _ in range(3):
        same(
            run(given(RANK, RANK + 2, 2)),
            np.concatenate([given(rank, rank + 2, 2) for rank in range(SIZE)]),
        )


@case
def alltoall_with_and_without_splits() -> None:
    result, rows = ddl.alltoall(tf.range(2 * SIZE) + 100 * RANK)
    same(result, [100 * rank + 2 * RANK + i for rank in range(SIZE) for i in range(2)])
    same(rows, [2] * SIZE)
    splits = [(RANK + rank) % 3 for rank in range(SIZE)]
    result, rows = ddl.alltoall(tf.fill([sum(splits), 2], RANK), splits)
    same(rows, [(RANK + rank) % 3 for rank in range(SIZE)])
    same(result[:, 0], np.repeat(np.arange(SIZE), rows))
