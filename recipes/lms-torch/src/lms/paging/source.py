"""The tensor that autograd would have kept: its data may be replaced until the program lets go."""

from __future__ import annotations

import sys
from types import FrameType

import torch
import torch.utils.checkpoint
from torch.utils.weak import TensorWeakRef


class Source:
    """A tensor that was saved, and the storage that it had then.

    Autograd keeps an operation's inputs as they are, and so uses the data that they have in the
    end: `x.data = y` after an operation changes its gradient, even if the program then drops `x`.

    Args:
        keep: whether to keep the tensor until `let_go`. A storage is in memory as long.
    """

    __slots__ = ("__weakref__", "_cdata", "_kept", "_replaced", "_weak")

    def __init__(self, tensor: torch.Tensor, keep: bool) -> None:
        self._kept = tensor if keep else None
        self._weak = TensorWeakRef(tensor)
        self._cdata = tensor.untyped_storage()._cdata
        self._replaced = False

    def keeps(self, tensor: torch.Tensor) -> bool:
        """Whether it keeps this tensor."""
        return self._kept is tensor

    def references(self) -> int:
        """References of Python's to the tensor that is kept."""
        return sys.getrefcount(self._kept)

    def let_go(self) -> bool:
        """Whether the program has the tensor no more; nobody can replace its data then."""
        if self._kept is not None:
            if self.references() > _OWN:
                return False
            self._replaced = self.replaced
            self._kept = None
        return True

    @property
    def replaced(self) -> bool:
        """Whether the tensor has got other data since, or had when the program let go of it."""
        tensor = self._kept
        if tensor is None:
            tensor = self._weak()
        if tensor is None:
            return self._replaced
        return bool(tensor.untyped_storage()._cdata != self._cdata)


_OWN = Source(torch.empty(1), keep=True).references()


def is_result(tensor: torch.Tensor, saver: FrameType | None) -> bool:
    """Whether a tensor that is being saved is a result of the operation that saves it.

    Autograd saves the data of such a tensor, and of no other the data alone: else the operation and
    its result would keep each other.

    Args:
        saver: the frame that has called the operation, if one has.
    """
    node = tensor.grad_fn
    if node is None:
        return False
    if saver is not None and saver.f_code is _APPLY:
        return not any(tensor is argument for argument in saver.f_locals["args"])
    if saver is not None and saver.f_code.co_filename == _CHECKPOINT:
        return False
    newest = torch._C._autograd._get_sequence_nr() - 1
    return bool(node._sequence_nr() == newest)


#: Python saves here, and not an operation of C++, whose node would be the newest: functions of
#: Python's, and checkpoints their arguments.
_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]
_CHECKPOINT = torch.utils.checkpoint.__file__
