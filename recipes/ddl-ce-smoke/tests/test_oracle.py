"""The oracle: exact in every type, and blind to no mistake."""

from __future__ import annotations

from functools import reduce

import pytest
import torch
from ddl_ce_smoke import oracle

REDUCTIONS = {
    "sum": torch.add,
    "average": torch.add,
    "prod": torch.mul,
    "min": torch.minimum,
    "max": torch.maximum,
}
COUNT = 1001


def reduce_in_type(op: str, dtype: str, ranks: list[int], size: int) -> torch.Tensor:
    """The reduction computed in the type itself, rounding at each step, in the given order."""
    kind = oracle.DTYPES[dtype]
    inputs = [oracle.contribution(op, dtype, rank, size, COUNT).to(kind) for rank in ranks]
    result = reduce(REDUCTIONS[op], inputs)
    return torch.div(result, size).to(kind) if op == "average" else result


def cases() -> list[tuple[str, str]]:
    return [
        (op, dtype)
        for dtype in oracle.DTYPES
        for op in oracle.OPS
        if not (op == "average" and dtype.startswith("int"))
    ]


@pytest.mark.parametrize(("op", "dtype"), cases())
@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_any_order_in_any_type_gives_the_exact_result(op: str, dtype: str, size: int) -> None:
    expected = oracle.reduced(op, dtype, size, COUNT)
    for order in (list(range(size)), list(reversed(range(size)))):
        assert oracle.compare(expected, reduce_in_type(op, dtype, order, size)) is None


@pytest.mark.parametrize(("op", "dtype"), cases())
def test_a_rank_left_out_shows(op: str, dtype: str) -> None:
    expected = oracle.reduced(op, dtype, 4, COUNT)
    assert oracle.compare(expected, reduce_in_type(op, dtype, [0, 1, 3], 4))


@pytest.mark.parametrize("op", ["sum", "average", "prod"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_rank_counted_twice_shows(op: str, dtype: str) -> None:
    expected = oracle.reduced(op, dtype, 4, COUNT)
    assert oracle.compare(expected, reduce_in_type(op, dtype, [0, 1, 2, 3, 3], 4))


@pytest.mark.parametrize(
    ("dtype", "narrower"),
    [("float64", "float32"), ("float32", "float16"), ("int64", "float64"), ("float16", "bfloat16")],
)
def test_a_reduction_in_a_narrower_type_shows(dtype: str, narrower: str) -> None:
    kind = oracle.DTYPES[narrower]
    parts = [oracle.contribution("sum", dtype, rank, 2, COUNT).to(kind) for rank in range(2)]
    got = (parts[0] + parts[1]).to(oracle.DTYPES[dtype])
    assert oracle.compare(oracle.reduced("sum", dtype, 2, COUNT), got)


def test_a_shifted_result_shows() -> None:
    expected = oracle.reduced("max", "float32", 2, COUNT)
    assert oracle.compare(expected, expected.roll(1).to(torch.float32))


def test_blocks_are_pieces_of_the_whole() -> None:
    whole = oracle.reduced("sum", "float32", 3, 30)
    assert torch.equal(oracle.reduced("sum", "float32", 3, 10, start=20), whole[20:])


def test_a_mismatch_names_the_first_wrong_element() -> None:
    expected = torch.arange(100)
    got = expected.to(torch.float16)
    got[17] += 1
    got[18] = torch.nan
    assert str(oracle.compare(expected, got)) == (
        "2 of 100 elements wrong, first at index 17: expected 17.0, got 18.0"
    )


def test_a_wrong_length_is_a_mismatch() -> None:
    wrong = oracle.compare(torch.arange(5), torch.arange(3))
    assert str(wrong) == (
        "2 of 5 elements wrong, first at index 3: expected 5 elements, got 3 elements"
    )


def test_nothing_equals_nothing() -> None:
    assert oracle.compare(torch.empty(0, dtype=torch.int64), torch.empty(0)) is None
