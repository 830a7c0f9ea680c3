"""The errors of LMS. Each message names the mistake and the remedy."""

from __future__ import annotations


class LMSError(RuntimeError):
    """LMS was asked for something that cannot be."""


class LimitError(LMSError, ValueError):
    """A limit, or another size in bytes, that makes no sense."""


class NoPlanError(LMSError):
    """No choice of tensors keeps the program below the limit.

    Attributes:
        shortfall: bytes that are missing when everything that can leave has left.
    """

    def __init__(self, message: str, shortfall: int) -> None:
        super().__init__(message)
        self.shortfall = shortfall


class HostMemoryError(LMSError):
    """The host has no memory for what is to leave the device."""


class InplaceError(LMSError):
    """A tensor that backward needs was changed in place.

    Autograd makes this check itself, but not while a hook on saved tensors is active.
    """
