"""What the cases stand on: ranks' inputs, the oracle, comparisons, and the list of cases.

Every rank knows what every other rank gives: `given(rank)` is a function of the rank. Values are
small whole numbers, so that sums are exact in every type, whatever their order; the oracle is
numpy's, in float64.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Case = Callable[[Any], None]

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
RANKS = range(SIZE)
SHAPES: list[tuple[int, ...]] = [(), (1,), (17,), (3, 5, 7), (100_003,)]
CASES: list[Case] = []


def case(function: Case) -> Case:
    """Registers a case: a function of the framework (`Frame`) that it runs in."""
    CASES.append(function)
    return function


def given(rank: int, *shape: int, top: int = 4, salt: int = 0) -> Array:
    """What a rank gives: whole numbers in [1, top)."""
    generator = np.random.default_rng([rank, salt])
    return generator.integers(1, top, shape).astype(np.float64)


def everyone(*shape: int, ranks: Iterable[int] = RANKS, top: int = 4, salt: int = 0) -> Array:
    return np.stack([given(rank, *shape, top=top, salt=salt) for rank in ranks])


REDUCTIONS: dict[str, Callable[[Array], Array]] = {
    "Sum": lambda all_: all_.sum(0),
    "Average": lambda all_: all_.mean(0),
    "Min": lambda all_: all_.min(0),
    "Max": lambda all_: all_.max(0),
    "Product": lambda all_: all_.prod(0),
}


def same(result: Array, expected: Array, what: object = "") -> None:
    """Fails unless both arrays have one shape and the same values, exactly."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert result.shape == expected.shape, f"{what}: shapes {result.shape}, {expected.shape}"
    wrong = np.flatnonzero((result != expected).ravel())
    assert not wrong.size, (
        f"{what}: {wrong.size} of {result.size} values differ, the first at {wrong[0]}: "
        f"{result.ravel()[wrong[0]]} instead of {expected.ravel()[wrong[0]]}"
    )


def close(result: Array, expected: Array, tolerance: float = 1e-5, what: object = "") -> None:
    result, expected = np.asarray(result, np.float64), np.asarray(expected, np.float64)
    assert result.shape == expected.shape, f"{what}: shapes {result.shape}, {expected.shape}"
    off = float(np.abs(result - expected).max(initial=0.0))
    assert off <= tolerance, f"{what}: off by {off}"


def refused(operation: Callable[[], object], words: str, *errors: type[Exception]) -> None:
    """Fails unless the operation raises one of these kinds, with these words in the message."""
    kinds = errors or (ValueError,)
    try:
        operation()
    except kinds as error:
        if words.lower() not in str(error).lower():
            raise AssertionError(f"refused with other words than {words!r}: {error}") from error
    else:
        raise AssertionError(f"was not refused: {words}")


def rows(rank: int, count: int) -> slice:
    """The rows of rank's part when `count` rows are scattered: the first ones get one more."""
    each, more = divmod(count, SIZE)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))


def adasum(values: Sequence[Array]) -> Array:
    """Adasum of a power of two of vectors: pairs of neighbours, then pairs of pairs."""
    if len(values) == 1:
        return values[0]
    half = len(values) // 2
    a, b = adasum(values[:half]), adasum(values[half:])
    dot, a_squared, b_squared = (a * b).sum(), (a * a).sum(), (b * b).sum()
    return (1 - dot / (2 * a_squared)) * a + (1 - dot / (2 * b_squared)) * b
