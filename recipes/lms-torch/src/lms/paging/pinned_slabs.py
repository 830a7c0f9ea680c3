"""Pinned host memory in slabs that are allocated once.

torch's own pinned allocator rounds each request up to a power of two. Here a request takes its
bytes, rounded to a page, from slabs of a fixed size.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from lms.errors import HostMemoryError
from lms.sizes import size_text

#: Slots begin at multiples of this many bytes.
PAGE = 4096


def host_is_full(more: int, used: int, total: int | None = None) -> HostMemoryError:
    """The error of `more` bytes beside those that LMS has `used`; `total` is all there are."""
    there = size_text(used) + ("" if total is None else f" of {size_text(total)}")
    return HostMemoryError(
        f"the host has no memory for {size_text(more)} more that is to leave the device: LMS has "
        f"{there}; free memory on the host, or raise the limit on the device so that less leaves"
    )


@dataclass
class _Slab:
    """One piece of host memory and its free ranges: (begin, end), ascending, never adjacent."""

    memory: torch.Tensor
    free: list[tuple[int, int]] = field(default_factory=list)

    def take(self, nbytes: int) -> int | None:
        """The beginning of the first range that has `nbytes`, or None."""
        for index, (begin, end) in enumerate(self.free):
            if end - begin >= nbytes:
                self.free[index : index + 1] = [(begin + nbytes, end)] * (end - begin > nbytes)
                return begin
        return None

    def give(self, begin: int, end: int) -> None:
        """Joins a range to its neighbours."""
        ranges: list[tuple[int, int]] = []
        for first, last in sorted([*self.free, (begin, end)]):
            if ranges and ranges[-1][1] == first:
                ranges[-1] = (ranges[-1][0], last)
            else:
                ranges.append((first, last))
        self.free = ranges


class HostSlot:
    """`bytes`: a flat uint8 tensor in a slab, which is given back when this dies."""

    def __init__(self, slab: _Slab, begin: int, nbytes: int) -> None:
        self.bytes = slab.memory[begin : begin + nbytes]
        end = begin + -(-nbytes // PAGE) * PAGE
        weakref.finalize(self, slab.give, begin, end)


class SlabPool:
    """Hands out slots in host memory.

    Args:
        slab: bytes of each slab; a larger request gets a slab of its own size.
        allocate: makes a flat uint8 tensor of so many bytes; pinned when there is a GPU.
    """

    def __init__(
        self, slab: int = 1 << 28, allocate: Callable[[int], torch.Tensor] | None = None
    ) -> None:
        self.slab = slab
        self._allocate = allocate or (
            lambda n: torch.empty(n, dtype=torch.uint8, pin_memory=torch.cuda.is_available())
        )
        self._slabs: list[_Slab] = []

    @property
    def total(self) -> int:
        """Bytes of all slabs."""
        return sum(slab.memory.numel() for slab in self._slabs)

    @property
    def free(self) -> int:
        """Bytes of them that are in nobody's use."""
        return sum(end - begin for slab in self._slabs for begin, end in slab.free)

    def take(self, nbytes: int) -> HostSlot:
        """A slot for `nbytes` bytes.

        Raises:
            HostMemoryError: there is none.
        """
        pages = -(-nbytes // PAGE) * PAGE
        for slab in self._slabs:
            if (begin := slab.take(pages)) is not None:
                return HostSlot(slab, begin, nbytes)
        size = max(self.slab, pages)
        try:
            memory = self._allocate(size)
        except (RuntimeError, MemoryError) as error:
            raise host_is_full(size, self.total) from error
        self._slabs.append(_Slab(memory, [(0, size)]))
        return self.take(nbytes)
