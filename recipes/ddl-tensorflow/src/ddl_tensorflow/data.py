"""Each rank's share of the data."""

from __future__ import annotations

import sys
import warnings
from typing import Any


def shard(data: Any) -> Any:
    """Take this rank's share: every size-th element, from the rank's own on.

    All ranks get as many, so that all make as many steps: up to size - 1 elements at the end are
    left out. Shuffle and batch afterwards.

    Args:
        data: a `tf.data.Dataset`, an array or tensor, or a tuple, list or dictionary of arrays and
            tensors. A dataset that does not know its length is shared out as it is, with a
            warning: the ranks' shares may differ in length.

    Returns:
        The same kind.

    Raises:
        ValueError: fewer elements than ranks.
    """
    size = _size()
    tf = sys.modules.get("tensorflow")  # without it, there is no Dataset
    if tf is not None and isinstance(data, tf.data.Dataset):
        length = int(data.cardinality())
        if length >= 0:
            data = data.take(_even(length, size))
        elif length == tf.data.UNKNOWN_CARDINALITY and size > 1:
            warnings.warn(
                "shard: the dataset does not know its length, so that ranks may make different "
                "numbers of steps and wait for each other in vain; use .repeat() and give fit "
                "steps_per_epoch, or say the length: tf.data.experimental.assert_cardinality",
                stacklevel=2,
            )
        return data.shard(size, _rank())
    import keras

    return keras.tree.map_structure(_shard_array, data)


def _shard_array(array: Any) -> Any:
    size = _size()
    return array[_rank() : _even(len(array), size) : size]


def _size() -> int:
    import ddl

    ddl.init()
    return ddl.size()


def _rank() -> int:
    import ddl

    return ddl.rank()


def _even(length: int, size: int) -> int:
    if length < size:
        raise ValueError(f"shard: {length} elements cannot be shared out to {size} ranks")
    return length - length % size
