"""The exact oracle of the collectives: the input of each rank, and the result that must come out.

Every input is a function of (rank, index) alone, so each rank can compute every other rank's
input, and with it the result, without any communication. All numbers are integers chosen such
that each partial result is exactly representable in the data type under test: a reduction in
any order, by any algorithm, must give these very bits, in float16 and bfloat16 too.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
}

OPS = ("sum", "prod", "min", "max", "average")

#: Integers up to this magnitude are exact in the type. The whole range is used, so that a
#: float64 reduced in float32, or an int64 in float64, shows.
EXACT = {
    "float32": 2**24,
    "float64": 2**53,
    "float16": 2**11,
    "bfloat16": 2**8,
    "int32": 2**31 - 1,
    "int64": 2**62,
}


def _noise(rank: int, index: torch.Tensor) -> torch.Tensor:
    """An int64 in [0, 2^62) per index that looks random: a hash, wrapping at 64 bits.

    By NumPy: PyTorch 2.6 shifts negative numbers wrongly on POWER, eight and more at once.
    """
    mixed = (index.numpy() + 1) * 6364136223846793005 + (rank + 1) * 40503
    mixed = (mixed ^ (mixed >> 29)) * 2685821657736338717
    return torch.from_numpy((mixed ^ (mixed >> 32)) & (2**62 - 1))


def contribution(
    op: str, dtype: str, rank: int, size: int, count: int, start: int = 0
) -> torch.Tensor:
    """The input of `rank` of `size` to a reduction: elements start .. start+count-1, int64.

    With E the largest exact magnitude of `dtype`:
    - sum: |x| <= E/size, so that no partial sum leaves the exact range;
    - average: also a multiple of `size`, so that the mean is an integer (bfloat16 on more than
      16 ranks counts on an accumulation in float32, as ddl documents it);
    - prod: +-1, and +-2 for one rank per index, so that a rank left out or counted twice shows;
    - min, max: any exact integer.
    """
    index = torch.arange(start, start + count, dtype=torch.int64)
    noise, exact = _noise(rank, index), EXACT[dtype]
    if op == "prod":
        sign = 1 - 2 * (noise & 1)
        return sign * torch.where(index % size == rank, 2, 1)
    if op == "average":
        limit = max(1, exact // (size * size))
        return size * (noise % (2 * limit + 1) - limit)
    limit = exact // size if op == "sum" else exact
    return noise % (2 * limit + 1) - limit


def reduced(op: str, dtype: str, size: int, count: int, start: int = 0) -> torch.Tensor:
    """The reduction of all ranks' contributions: its elements start .. start+count-1, int64."""
    result = contribution(op, dtype, 0, size, count, start)
    for rank in range(1, size):
        other = contribution(op, dtype, rank, size, count, start)
        if op in ("sum", "average"):
            result = result + other
        elif op == "prod":
            result = result * other
        else:
            result = torch.minimum(result, other) if op == "min" else torch.maximum(result, other)
    return result // size if op == "average" else result


@dataclass(frozen=True)
class Mismatch:
    """The first wrong element of a result, and how many there are."""

    index: int
    expected: str
    got: str
    wrong: int
    count: int

    def __str__(self) -> str:
        """One line for the report."""
        return (
            f"{self.wrong} of {self.count} elements wrong, first at index {self.index}: "
            f"expected {self.expected}, got {self.got}"
        )


def compare(expected: torch.Tensor, got: torch.Tensor) -> Mismatch | None:
    """None if every element of `got` equals `expected` (int64, cast to the type of `got`).

    A wrong length is a mismatch too; NaN equals nothing.
    """
    if got.shape != expected.shape:
        return Mismatch(
            min(len(expected), len(got)),
            f"{len(expected)} elements",
            f"{len(got)} elements",
            abs(len(expected) - len(got)),
            len(expected),
        )
    wanted = expected.to(got.dtype)
    wrong = torch.nonzero(wanted != got).flatten()
    if not len(wrong):
        return None
    first = int(wrong[0])
    return Mismatch(
        first, str(wanted[first].item()), str(got[first].item()), len(wrong), len(expected)
    )
