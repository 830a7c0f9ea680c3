"""Memory that a rank and its companion share, without a name that could be left behind."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from ddl_torch.companion.messages import Place

if TYPE_CHECKING:
    from collections.abc import Callable

_LEAST = 1 << 12  # bytes


class Buffers:
    """The rank's side: makes shared memory for tensors, and uses it again.

    Args:
        send: told the number, the descriptor and the size in bytes of new memory, which the
            companion has to map before the next call.
    """

    def __init__(self, send: Callable[[int, int, int], None]) -> None:
        self._send = send
        self._memory: list[torch.Tensor] = []  # by number
        self._free: dict[int, list[int]] = {}  # by size

    def take(self, like: torch.Tensor) -> Place:
        """Memory for a tensor of that shape and type, until `give_back`."""
        size = _LEAST
        while size < like.nbytes:
            size *= 2
        free = self._free.setdefault(size, [])
        number = free.pop() if free else self._make(size)
        return Place(number, tuple(like.shape), like.dtype)

    def give_back(self, place: Place) -> None:
        """Let others use it; the companion has ended its call."""
        self._free[self._memory[place.buffer].nbytes].append(place.buffer)

    def at(self, place: Place) -> torch.Tensor:
        """The tensor there."""
        return tensor_at(self._memory[place.buffer], place)

    def _make(self, size: int) -> int:
        number = len(self._memory)
        file = os.memfd_create("ddl-companion", os.MFD_CLOEXEC)
        try:
            os.ftruncate(file, size)
            self._memory.append(mapped(file, size))
            self._send(number, file, size)
        finally:
            os.close(file)
        return number


def mapped(file: int, nbytes: int) -> torch.Tensor:
    """The bytes of that file, which stay when it is closed."""
    # mmap of Python would keep a descriptor for each.
    path = f"/proc/self/fd/{file}"
    return torch.from_file(path, shared=True, size=nbytes, dtype=torch.uint8)


def tensor_at(memory: torch.Tensor, place: Place) -> torch.Tensor:
    """A tensor at the beginning of `memory` (bytes)."""
    count = 1
    for extent in place.shape:
        count *= extent
    return memory[: count * place.dtype.itemsize].view(place.dtype).view(place.shape)
