"""The calls of IBM's LMS (PyTorch 1.1-1.5), so that scripts that were written for it run.

They are in `torch.cuda`: set_enabled_lms, set_limit_lms, set_size_lms, their get_..., and
reclaim_inactive; `lms_torch` puts them there. As with IBM's, a limit of 0 means all of the device,
and limit and size may be set before LMS is switched on or after.
"""

from __future__ import annotations

import torch
from lms_torch import NAMES

from lms import session
from lms.errors import LimitError, LMSError
from lms.sizes import DEFAULT_SMALLEST, parse_size

_limit = 0
_size = parse_size(DEFAULT_SMALLEST)
_on: session.LMS | None = None  # the one that was switched on here


def set_enabled_lms(enable: bool) -> None:
    """Switches LMS on with the limit and size that were set, or off."""
    global _on
    if not enable:
        if get_enabled_lms():
            session.disable()
    elif not get_enabled_lms():
        _on = session.enable(_limit or None, smallest=_size)


def get_enabled_lms() -> bool:
    """Whether LMS is on."""
    try:
        session.current()
    except LMSError:
        return False
    return True


def set_limit_lms(limit: int) -> None:
    """Bytes on the device, 0 for all. Where LMS is on, it learns anew.

    Raises:
        LimitError: it is not a number of bytes, or more than the device has, or LMS was switched on
            by another call, which has the limit.
    """
    _set(0 if limit == 0 else parse_size(limit), _size, "limit")


def get_limit_lms() -> int:
    """The limit that `set_limit_lms` has set."""
    return _limit


def set_size_lms(size: int) -> None:
    """Storages of fewer bytes stay. Where LMS is on, it learns anew.

    Raises:
        LimitError: it is not a number of bytes, or LMS was switched on by another call, which has
            the size.
    """
    _set(_limit, parse_size(size, "size"), "size")


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


def _set(limit: int, size: int, what: str) -> None:
    global _limit, _size
    before, is_on = (_limit, _size), get_enabled_lms()
    if is_on and session.current() is not _on:
        raise LimitError(
            f"torch.cuda.set_{what}_lms has no effect on an LMS that lms.enable or lms.LMS has "
            f"switched on: give the {what} there"
        )
    if (limit, size) == before:
        return
    _limit, _size = limit, size
    if is_on:
        set_enabled_lms(False)
        try:
            set_enabled_lms(True)
        except LMSError:
            _limit, _size = before
            set_enabled_lms(True)
            raise


def install() -> None:
    """Puts the calls into `torch.cuda`."""
    for name in NAMES:
        setattr(torch.cuda, name, globals()[name])
