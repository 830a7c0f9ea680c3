"""What the cases stand on: arrays that are spread over ranks, comparisons, and the list of cases.

Every rank knows what every other rank gives: `given(rank)` is a function of the rank. Values are
small whole numbers, so that sums are exact in every type, whatever their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)
jax.distributed.initialize()

RANK, SIZE = jax.process_index(), jax.process_count()
CASES: list[Callable[[], None]] = []
MESH = Mesh(jax.devices(), "i")


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES.append(function)
    return function


def given(rank: int, *shape: int, dtype: Any = np.float32) -> np.ndarray:
    top = 2 if np.dtype(dtype) == np.bool_ else 4
    return np.random.default_rng(1000 + rank).integers(0, top, shape).astype(dtype)


def everyone(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.stack([given(rank, *shape, dtype=dtype) for rank in range(SIZE)])


def mapped(
    function: Callable[[Any], Any],
    whole: np.ndarray,
    mesh: Mesh = MESH,
    spec: P | None = None,
    out: P | None = None,
) -> list[tuple[Any, np.ndarray]]:
    """The function on shards of `whole` by shard_map: this rank's results, each with its index."""
    spec = P(mesh.axis_names) if spec is None else spec
    sharding = NamedSharding(mesh, spec)
    array = jax.make_array_from_callback(whole.shape, sharding, lambda index: whole[index])
    whole_map = jax.shard_map(
        function, mesh=mesh, in_specs=spec, out_specs=spec if out is None else out, check_vma=False
    )
    result = jax.jit(whole_map)(array)
    return [(shard.index, np.asarray(shard.data)) for shard in result.addressable_shards]


def same(result: Any, expected: np.ndarray) -> None:
    result = np.asarray(result)
    assert result.shape == expected.shape, (result.shape, expected.shape)
    assert np.array_equal(result.astype(np.complex128), expected.astype(np.complex128)), (
        result.ravel()[:8],
        expected.ravel()[:8],
    )


def all_same(results: Sequence[tuple[Any, np.ndarray]], expected: np.ndarray) -> None:
    assert results
    for index, result in results:
        same(result, expected[index])


def refused(operation: Callable[[], object], words: str) -> None:
    try:
        operation()
    except (ValueError, TypeError, RuntimeError, NotImplementedError) as error:
        if words.lower() not in str(error).lower():
            raise
    else:
        raise AssertionError(f"was not refused: {words}")
