"""What the cases stand on: ranks' inputs and comparisons.

Every rank knows what every other rank gives: `given(rank)` is a function of the rank. Values are
small whole numbers, so that sums are exact in every type, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import ddl
import numpy as np
import tensorflow as tf
from ranked import SIZE

FLOATS = [tf.float32, tf.float64, tf.float16, tf.bfloat16]
NUMBERS = [*FLOATS, tf.int32, tf.int64]
SMALL = [tf.uint8, tf.int8]


def given(rank: int, *shape: int, dtype: Any = tf.float32) -> tf.Tensor:
    numbers = np.random.default_rng(1000 + rank).integers(1, 4, shape)
    return tf.cast(tf.constant(numbers), dtype)


def everyone(*shape: int, dtype: Any = tf.float32) -> np.ndarray:
    """Of shape (size, *shape): float64, or int64 for whole numbers."""
    wide = np.float64 if dtype.is_floating else np.int64
    return np.stack([given(r, *shape, dtype=dtype).numpy().astype(wide) for r in range(SIZE)])


def as_array(x: Any) -> np.ndarray:
    return np.asarray(x.numpy() if isinstance(x, tf.Tensor | tf.Variable) else x)


def same(result: Any, expected: Any) -> None:
    """Bit by bit, in the result's type."""
    ours = as_array(result)
    theirs = as_array(expected).astype(ours.dtype)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    assert (ours == theirs).all(), (ours.ravel()[:8], theirs.ravel()[:8])


def close(ours: Iterable[Any], theirs: Iterable[Any], tolerance: float = 1e-5) -> None:
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            as_array(one).astype(float), as_array(other).astype(float), tolerance, tolerance
        )


def equal_on_all_ranks(arrays: Iterable[Any]) -> None:
    for array in arrays:
        mine = np.ascontiguousarray(array)
        same(mine, ddl.broadcast(mine.copy()))


def refused(operation: Callable[[], object], words: str, kind: type[Exception]) -> None:
    message = None
    try:
        operation()
    except kind as error:
        message = str(error)
    assert message is not None, f"was not refused: {words}"
    assert words in message, message
