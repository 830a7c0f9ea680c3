"""The class of paged parameters: torch functions that are given one get its bytes first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import GetSetDescriptorType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from lms.errors import LMSError
from lms.paging.paged_parameter import paged_among, pinned

#: Properties of a tensor that show its bytes; all others are known without them.
_PROPERTIES_WITH_BYTES = {"data", "T", "mT", "H", "mH", "real", "imag"}
#: Methods that need no bytes.
_METHODS_WITHOUT_BYTES = {
    *("dim", "element_size", "get_device", "is_complex", "is_contiguous", "is_floating_point"),
    *("ndimension", "nelement", "numel", "register_hook", "register_post_accumulate_grad_hook"),
    *("requires_grad_", "size", "storage_offset", "stride", "__hash__", "__len__"),
}
#: Methods that give the bytes to others, who may write.
_METHODS_THAT_EXPOSE_BYTES = {
    *("__array__", "__dlpack__", "data_ptr", "numpy", "set_", "storage", "untyped_storage"),
    *("const_data_ptr", "mutable_data_ptr", "_typed_storage"),
}


class Paged(torch.nn.Parameter):
    """A parameter under paging; see `lms.paging.paged_parameter`."""

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs the function with the bytes in place."""
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            _refuse_move(func, args)
            if not _needs_bytes(func):
                return func(*args, **kwargs)
            given = {id(p): p for p in tree_leaves((args, kwargs)) if type(p) is Paged}
            parameters = paged_among(given.values())
            with pinned(parameters):
                try:
                    return func(*args, **kwargs)
                finally:
                    if _may_write(func) or kwargs.get("out") is not None:
                        for parameter in parameters:
                            parameter.mark_changed()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.nn.Parameter:
        """A parameter as any other."""
        if id(self) not in memo:
            data = self.data.clone(memory_format=torch.preserve_format)
            memo[id(self)] = torch.nn.Parameter(data, self.requires_grad)
        copied: torch.nn.Parameter = memo[id(self)]
        return copied


def _refuse_move(func: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Raises LMSError if the parameter is about to move to another device: `model.to(...)`."""
    if getattr(func, "__name__", "") != "__set__" or type(args[1]) is not torch.Tensor:
        return
    if args[0].device != args[1].device:
        raise LMSError(
            f"this parameter of shape {tuple(args[0].shape)} is paged and cannot move from "
            f"{args[0].device} to {args[1].device}: switch LMS off, by lms.disable() or the end of "
            "its `with`, move the model, and switch LMS on there"
        )


def _needs_bytes(func: Callable[..., Any]) -> bool:
    name = getattr(func, "__name__", "")
    if name in {"__get__", "__set__", "__delete__"}:
        owner = getattr(func, "__self__", None)
        if not isinstance(owner, GetSetDescriptorType):
            return True
        return owner.__name__ in _PROPERTIES_WITH_BYTES
    return name not in _METHODS_WITHOUT_BYTES


def _may_write(func: Callable[..., Any]) -> bool:
    """Whether a parameter's version may not tell that its bytes change: `.data` has its own."""
    name = getattr(func, "__name__", "")
    if name == "__get__":
        return getattr(getattr(func, "__self__", None), "__name__", "data") == "data"
    in_place = name.endswith("_") and not name.endswith("__")
    return name in _METHODS_THAT_EXPOSE_BYTES or in_place
