"""The interface of everything that a plan moves, and the queue of those that wait to leave."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator


class Swappable(ABC):
    """Memory on the device that a plan can move to the host and back.

    Attributes:
        number: its number in the iteration, by which plans call it.
        nbytes: bytes of its storage, which all leave and return together.
        used: whether the use that it waited for has come.
    """

    number: int
    nbytes: int
    used: bool

    @property
    @abstractmethod
    def absent(self) -> bool:
        """Whether there is nothing to send out: it has been used, or is not on the device."""

    @property
    @abstractmethod
    def on_host(self) -> bool:
        """Whether the host has the bytes, or will have them."""

    @property
    @abstractmethod
    def referenced(self) -> bool:
        """Whether the program itself needs the memory."""

    @property
    @abstractmethod
    def freed(self) -> bool:
        """Whether the memory is free."""

    @abstractmethod
    def page_out(self) -> None:
        """Begins the copy to the host, if that has not got the bytes already."""

    @abstractmethod
    def release(self) -> None:
        """Gives up the memory on the device. Computing waits for the copy out, if it must."""

    @abstractmethod
    def page_in(self) -> None:
        """Begins the copy back, unless the bytes are still there."""

    @abstractmethod
    def offer(self) -> None:
        """Lets the allocator take the memory, if that is possible."""

    @abstractmethod
    def recall(self) -> None:
        """Takes an offer to the allocator back."""


class ReleaseQueue:
    """All that is to leave, or to be offered, once the program references it no more; in order."""

    def __init__(self) -> None:
        self._waiting: weakref.WeakKeyDictionary[Swappable, None] = weakref.WeakKeyDictionary()

    def put(self, swappable: Swappable) -> None:
        """Adds one at the end, unless it is there already."""
        self._waiting[swappable] = None

    def recall(self, swappables: Iterable[Swappable]) -> None:
        """Adds those that are on the device; the allocator may take them no more."""
        for swappable in swappables:
            swappable.recall()
            if not swappable.absent:
                self._waiting[swappable] = None

    def remove(self, swappables: Iterable[Swappable]) -> None:
        """Removes swappables that need not leave."""
        for swappable in swappables:
            self._waiting.pop(swappable, None)

    def take_unreferenced(self) -> Iterator[Swappable]:
        """Removes, one by one, those that the program references no more."""
        for swappable in list(self._waiting):
            absent = swappable.absent
            if not absent and swappable.referenced:
                continue
            del self._waiting[swappable]
            if not absent:
                yield swappable
