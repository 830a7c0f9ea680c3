"""Small arrays of a tree as one message."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

DEFAULT, MOST = 1 << 20, 1 << 30  # as in libddl


def fused(reduce: Callable[[Any], Any], tree: Any) -> Any:
    """`reduce` of each array, but consecutive small ones of a type go together.

    Args:
        reduce: works element by element.
        tree: of arrays. A message has at most DDL_FUSION_BYTES (1 MiB), which all ranks share.

    Raises:
        ValueError: DDL_FUSION_BYTES is no such size.
    """
    arrays, shape = jax.tree.flatten(tree)
    results: list[Any] = []
    for group in _groups(arrays, _most_bytes()):
        if len(group) == 1:
            results.append(reduce(group[0]))
            continue
        flat = reduce(jnp.concatenate([array.ravel() for array in group]))
        begin = 0
        for array in group:
            results.append(flat[begin : begin + array.size].reshape(array.shape))
            begin += array.size
    return jax.tree.unflatten(shape, results)


def _groups(arrays: list[Any], most: int) -> list[list[Any]]:
    groups: list[list[Any]] = []
    room = 0
    for array in arrays:
        nbytes = math.prod(array.shape) * array.dtype.itemsize
        if not groups or array.dtype != groups[-1][0].dtype or nbytes > room:
            groups.append([])
            room = most
        groups[-1].append(array)
        room -= nbytes
    return groups


def _most_bytes() -> int:
    """The size of a message at most, in bytes.

    Raises:
        ValueError: DDL_FUSION_BYTES is no such size, in libddl's words.
    """
    text = os.environ.get("DDL_FUSION_BYTES")
    if text is None:
        return DEFAULT
    value = int(text) if text.isascii() and text.isdecimal() else -1
    if not 0 <= value <= MOST:
        raise ValueError(
            f"DDL_FUSION_BYTES: expected a whole number from 0 to {MOST}, got '{text}'"
        )
    return value
