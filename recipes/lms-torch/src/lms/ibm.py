"""The calls of IBM's LMS (PyTorch 1.1-1.5), so that scripts that were written for it run.

`import lms` puts them into `torch.cuda`: set_enabled_lms, set_limit_lms, set_size_lms, their
get_..., and reclaim_inactive. As there, a limit of 0 means all of the device.
"""

from __future__ import annotations

import torch

from lms import session
from lms.errors import LimitError, LMSError
from lms.sizes import DEFAULT_SMALLEST, parse_size

_limit = 0
_size = parse_size(DEFAULT_SMALLEST)


def set_enabled_lms(enable: bool) -> None:
    """Switches LMS on with the limit and size that were set, or off."""
    if not enable:
        if get_enabled_lms():
            session.disable()
    elif not get_enabled_lms():
        session.enable(_limit or None, smallest=_size)


def get_enabled_lms() -> bool:
    """Whether LMS is on."""
    try:
        session.current()
    except LMSError:
        return False
    return True


def set_limit_lms(limit: int) -> None:
    """Bytes on the device, 0 for all; takes effect when LMS is switched on next.

    Raises:
        LimitError: it is not a number of bytes, or LMS is on.
    """
    global _limit
    _before_switching_on("set_limit_lms")
    _limit = 0 if limit == 0 else parse_size(limit)


def get_limit_lms() -> int:
    """The limit that `set_limit_lms` has set."""
    return _limit


def set_size_lms(size: int) -> None:
    """Storages of fewer bytes stay; takes effect when LMS is switched on next.

    Raises:
        LimitError: it is not a number of bytes, or LMS is on.
    """
    global _size
    _before_switching_on("set_size_lms")
    _size = parse_size(size, "size")


def get_size_lms() -> int:
    """The size that `set_size_lms` has set."""
    return _size


def reclaim_inactive() -> int:
    """Gives up all memory of saved tensors that nothing but backward needs; returns its bytes.

    Raises:
        LMSError: LMS is not on.
    """
    engine = session.current().engine
    assert engine is not None
    return engine.reclaim()


def _before_switching_on(name: str) -> None:
    if get_enabled_lms():
        raise LimitError(f"torch.cuda.{name} has no effect while LMS is on: call it before")


def install() -> None:
    """Puts the calls into `torch.cuda`."""
    for call in (
        set_enabled_lms,
        get_enabled_lms,
        set_limit_lms,
        get_limit_lms,
        set_size_lms,
        get_size_lms,
        reclaim_inactive,
    ):
        setattr(torch.cuda, call.__name__, call)
