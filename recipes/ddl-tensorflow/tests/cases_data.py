"""Each rank's share of the data."""

import warnings

import ddl
import numpy as np
import tensorflow as tf
from harness import refused, same
from ranked import RANK, SIZE, case


@case
def shares_of_arrays() -> None:
    x, y = np.arange(4 * SIZE + SIZE - 1), tf.range(4 * SIZE + SIZE - 1)
    mine, targets = ddl.shard((x, y))
    same(mine, np.arange(4) * SIZE + RANK)
    same(targets, mine)
    same(ddl.shard({"a": x})["a"], mine)


@case
def shares_of_datasets() -> None:
    data = ddl.shard(tf.data.Dataset.range(4 * SIZE + SIZE - 1))
    assert int(data.cardinality()) == 4
    same(list(data.as_numpy_iterator()), np.arange(4) * SIZE + RANK)
    unknown = tf.data.Dataset.range(3 * SIZE).filter(lambda _: True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        mine = ddl.shard(unknown)
        ddl.shard(tf.data.Dataset.range(SIZE).repeat())
    same(list(mine.as_numpy_iterator()), np.arange(3) * SIZE + RANK)
    told = [str(one.message) for one in seen if "does not know its length" in str(one.message)]
    assert len(told) == (SIZE > 1), told
    assert all("steps_per_epoch" in one and "assert_cardinality" in one for one in told), told
    endless = ddl.shard(tf.data.Dataset.range(SIZE).repeat())
    same(list(endless.take(3).as_numpy_iterator()), [RANK] * 3)


@case
def too_few_elements_to_share() -> None:
    if SIZE > 1:
        words = f"{SIZE - 1} elements cannot be shared out to {SIZE} ranks"
        refused(lambda: ddl.shard(np.ones(SIZE - 1)), words, ValueError)
        refused(lambda: ddl.shard(tf.data.Dataset.range(SIZE - 1)), words, ValueError)
