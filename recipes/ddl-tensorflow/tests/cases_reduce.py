"""Operations that reduce."""

import time
from collections.abc import Callable

import ddl
import numpy as np
import tensorflow as tf
from ddl_tensorflow import reducing
from harness import FLOATS, NUMBERS, SMALL, everyone, given, same
from ranked import RANK, SIZE, case

REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "sum": lambda all_: all_.sum(0),
    "prod": lambda all_: all_.prod(0),
    "min": lambda all_: all_.min(0),
    "max": lambda all_: all_.max(0),
}


@case
def allreduce_of_every_type_and_operation() -> None:
    for dtype in [*NUMBERS, *SMALL]:
        for op, oracle in REDUCTIONS.items():
            for shape in [(), (0,), (3,), (7, 5)]:
                result = ddl.allreduce(given(RANK, *shape, dtype=dtype), op)
                assert result.dtype == dtype
                same(result, oracle(everyone(*shape, dtype=dtype)))


@case
def allreduce_average() -> None:
    for dtype in FLOATS:
        result = ddl.allreduce(given(RANK, 999, dtype=dtype), "average")
        same(result, everyone(999, dtype=dtype).sum(0) / SIZE)


@case
def allreduce_of_large_tensors() -> None:
    """Messages of their own, and more small ones than a buffer holds."""
    same(ddl.allreduce(given(RANK, 1_000_003)), everyone(1_000_003).sum(0))
    many = [given(RANK, 100_000) for _ in range(30)]
    for result in ddl.allreduce_n(many, average=False):
        same(result, everyone(100_000).sum(0))


@case
def allreduce_leaves_its_input_alone() -> None:
    x = given(RANK, 10)
    before = x.numpy().copy()
    ddl.allreduce(x)
    same(x, before)


@case
def allreduce_of_variables() -> None:
    import keras

    variable = tf.Variable(given(RANK, 5))
    same(ddl.allreduce(variable), everyone(5).sum(0))
    same(variable, given(RANK, 5))
    same(ddl.allreduce(keras.Variable(given(RANK, 5))), everyone(5).sum(0))


@case
def allreduce_n_mixes_types_and_keeps_none() -> None:
    grads = [given(RANK, 4), None, given(RANK, 2, 3, dtype=tf.float64), given(RANK, 1)]
    first, none, second, third = ddl.allreduce_n(grads, average=False)
    assert none is None
    same(first, everyone(4).sum(0))
    same(second, everyone(2, 3, dtype=tf.float64).sum(0))
    same(third, everyone(1).sum(0))
    assert reducing.allreduce_n([None]) == [None]


@case
def allreduce_of_slices() -> None:
    mine = tf.IndexedSlices(given(RANK, RANK + 1, 3), list(range(RANK + 1)), dense_shape=[SIZE, 3])
    result = ddl.allreduce(mine)
    assert isinstance(result, tf.IndexedSlices)
    expected = np.zeros((SIZE, 3))
    for rank in range(SIZE):
        expected[: rank + 1] += given(rank, rank + 1, 3).numpy()
    same(tf.convert_to_tensor(result), expected)
    average = ddl.allreduce_n([mine])[0]
    np.testing.assert_allclose(tf.convert_to_tensor(average), expected / SIZE, 1e-6)


@case
def reduce_scatter_gives_blocks() -> None:
    for dtype in [tf.float32, tf.bfloat16, tf.int64, tf.uint8]:
        result = ddl.reduce_scatter(given(RANK, 3 * SIZE, 2, dtype=dtype))
        assert result.shape == (3, 2)
        same(result, everyone(3 * SIZE, 2, dtype=dtype).sum(0).reshape(SIZE, 3, 2)[RANK])


@case
def operations_in_another_order_on_each_rank() -> None:
    """Twenty at once, in a graph where nothing says which comes first."""
    order = np.random.default_rng(RANK).permutation(20)

    @tf.function
    def run() -> dict[str, tf.Tensor]:
        return {str(i): reducing.allreduce(given(RANK, 10) * float(i), name=f"x{i}") for i in order}

    for _ in range(5):
        for i, result in run().items():
            same(result, everyone(10).sum(0) * int(i))


@case
def many_calls_in_one_graph_share_messages() -> None:
    from ddl_tensorflow.reducing import allreduce

    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        return tf.add_n([allreduce(x * float(i), name=f"y{i}") for i in range(40)])

    same(run(tf.ones(3)), np.full(3, 780 * SIZE))


@case
def a_loop_in_a_graph() -> None:
    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(7):
            x = ddl.allreduce(x, "average") + 1.0
        return x

    same(run(tf.ones(2) * RANK), np.full(2, (SIZE - 1) / 2 + 7))


@case
def an_input_that_is_used_again_keeps_its_values() -> None:
    """Where nobody else needs an input, its memory becomes the result's; here somebody does."""

    @tf.function
    def run(x: tf.Tensor) -> tuple[tf.Tensor, ...]:
        y = x + 1.0
        return y, ddl.allreduce(y, name="u"), y * 2.0, *ddl.allreduce_n([y, y], average=False)

    x = given(RANK, 200_000)
    kept, total, doubled, again, twice = run(x)
    same(x, given(RANK, 200_000))
    same(kept, given(RANK, 200_000) + 1.0)
    same(doubled, 2.0 * (given(RANK, 200_000) + 1.0))
    for result in (total, again, twice):
        same(result, everyone(200_000).sum(0) + SIZE)


@case
def a_result_that_one_rank_alone_uses() -> None:
    """The others take part all the same; the order of operations is still free."""

    @tf.function
    def run(x: tf.Tensor) -> tf.Tensor:
        total = ddl.allreduce(x, name="used by rank 0")
        rows = ddl.allgather(x, name="rows used by rank 0")
        return tf.reduce_sum(total) + tf.reduce_sum(rows) if RANK == 0 else x[0]

    for _ in range(3):
        expected = 2 * everyone(4).sum() if RANK == 0 else given(RANK, 4)[0]
        same(run(given(RANK, 4)), expected)


@case
def a_loop_whose_iterations_overlap() -> None:
    """Ranks match the iterations, in whatever order they come to them."""

    def late(i: np.ndarray) -> np.ndarray:
        time.sleep(0.01 * float((8 - i) if RANK % 2 else i))
        return np.float32(i)

    def body(i: tf.Tensor) -> tf.Tensor:
        x = tf.numpy_function(late, [i], tf.float32, stateful=False)
        return ddl.allreduce(tf.ensure_shape(x, ()), name="overlap")

    @tf.function
    def run() -> tf.Tensor:
        return tf.map_fn(body, tf.range(8), fn_output_signature=tf.float32, parallel_iterations=8)

    for _ in range(3):
        same(run(), np.arange(8) * SIZE)
