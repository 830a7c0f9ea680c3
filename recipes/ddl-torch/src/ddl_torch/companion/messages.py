"""The words between a rank and its companion, which go through a socket of these two alone."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

#: A launcher's signals to a rank reach its group of processes. They are the rank's to answer, and
#: must not end what its last step needs.
SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT),
    *(signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU),
)

READY = 0  # the number of the answer to a `Begin`; calls have numbers from 1


@dataclass(frozen=True)
class Begin:
    """To the companion: become this rank of a new group. The group's socket follows.

    Attributes:
        address: of torch's store for this group alone, as "host:port/prefix".
        rank, size: in the group.
        seconds: for the ranks to meet, and for operations that have no timeout.
    """

    address: str
    rank: int
    size: int
    seconds: float


@dataclass(frozen=True)
class Buffer:
    """Shared memory of `nbytes` has this number from now on. Its descriptor follows."""

    number: int
    nbytes: int


class Place(NamedTuple):
    """A tensor in shared memory."""

    buffer: int
    shape: tuple[int, ...]
    dtype: torch.dtype


@dataclass(frozen=True)
class Options:
    """An object of torch's with options of an operation, which cannot be sent itself.

    Attributes:
        kind: its class.
        values: its attributes.
    """

    kind: type
    values: dict[str, Any]


@dataclass(frozen=True)
class Call:
    """An operation of the group, whose tensors are `Place`s."""

    number: int
    name: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Answer:
    """The end of the call of this number.

    Attributes:
        error: its sentence, or "".
        is_refused: the call was wrong, and the group is as it was.
    """

    number: int
    error: str = ""
    is_refused: bool = False


@dataclass(frozen=True)
class Lost:
    """A member of the group has ended, whatever this one waits for. `error` is the sentence."""

    error: str
