"""NumPy arrays and torch tensors as the collectives see them: an address, a length, a type."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np

from ddl import _core

if TYPE_CHECKING:
    import torch

    Array: TypeAlias = np.ndarray[Any, Any] | torch.Tensor
    ArrayT = TypeVar("ArrayT", np.ndarray[Any, Any], torch.Tensor)

#: DDL_Type of ddl.h by the name that NumPy and torch share.
TYPES = {name: number for name, number, _ in _core.element_types()}


class Buffer(NamedTuple):
    """A contiguous piece of memory. Valid as long as the array that it was made of."""

    address: int
    length: int  # elements
    nbytes: int
    dtype: str

    def reduction_type(self, name: str) -> int:
        """Return the DDL_Type; TypeError, naming the argument, when it cannot be reduced."""
        try:
            return TYPES[self.dtype]
        except KeyError:
            known = ", ".join(TYPES)
            raise TypeError(f"{name}: cannot reduce {self.dtype}; the types are {known}") from None


def is_torch(x: object) -> bool:
    """Whether `x` is a torch tensor. Does not import torch: without it, there is no tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def buffer_of(name: str, x: Array, *, writable: bool = False) -> Buffer:
    """Describe the memory of `x`, the argument called `name`.

    Raises:
        TypeError: not a NumPy array or torch tensor, on a device that the library does not know, or
            its elements are Python objects.
        ValueError: not contiguous, not aligned, of foreign byte order, or read-only though it would
            be written to.
    """
    if is_torch(x):
        return _buffer_of_tensor(name, x)
    if isinstance(x, np.ndarray):
        return _buffer_of_array(name, x, writable)
    raise TypeError(f"{name}: expected a NumPy array or a torch tensor, got {type(x).__name__}")


def _buffer_of_array(name: str, x: np.ndarray[Any, Any], writable: bool) -> Buffer:
    if x.dtype.hasobject:
        raise TypeError(f"{name}: an array of Python objects cannot be sent; pickle it to bytes")
    if not x.dtype.isnative:
        raise ValueError(f"{name}: foreign byte order {x.dtype.str}; use {name}.astype(native)")
    flags = x.flags
    if not flags.c_contiguous:
        raise ValueError(f"{name}: not contiguous; use numpy.ascontiguousarray({name})")
    if not flags.aligned:
        raise ValueError(f"{name}: not aligned in memory; use {name}.copy()")
    if writable and not flags.writeable:
        raise ValueError(f"{name}: read-only, but the result is to be written to it")
    return Buffer(x.ctypes.data, x.size, x.nbytes, _name_of(x.dtype))


@functools.cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.name  # computed anew by NumPy every time, at the cost of a small allreduce


def _buffer_of_tensor(name: str, x: Any) -> Buffer:
    if x.device.type != "cpu":
        _check_device(name, x)
    if str(x.layout) != "torch.strided":
        raise TypeError(f"{name}: {x.layout} tensors cannot be sent; use {name}.to_dense()")
    if not x.is_contiguous():
        raise ValueError(f"{name}: not contiguous; use {name}.contiguous()")
    if x.is_conj() or x.is_neg():
        raise ValueError(f"{name}: a lazily conjugated or negated view; use {name}.clone()")
    count = x.numel()
    return Buffer(x.data_ptr(), count, count * x.element_size(), str(x.dtype).split(".")[-1])


def _check_device(name: str, x: Any) -> None:
    if x.device.type != "cuda":
        raise TypeError(f"{name}: the tensor is on {x.device}; move it with {name}.cpu()")
    if not _core.cuda_library():
        raise TypeError(
            f"{name}: the tensor is on {x.device}, but this ddl was built without CUDA; move it "
            f"with {name}.cpu() or install the CUDA variant of ddl"
        )
    # The collective begins after all work that torch has been given on the tensor so far.
    import torch  # the tensor shows that it is loaded

    _core.set_stream(torch.cuda.current_stream(x.device).cuda_stream)


def empty_like(x: ArrayT, shape: tuple[int, ...] | None = None) -> ArrayT:
    """Return a new array of x's kind and type, of `shape` or x's own."""
    shape = tuple(x.shape) if shape is None else shape
    if isinstance(x, np.ndarray):
        return np.empty(shape, x.dtype)
    return x.new_empty(shape)


def check_same(name: str, out: Buffer, like_name: str, like: Buffer, count: int) -> None:
    """Check that `out` has `count` elements of like's type."""
    if out.dtype != like.dtype:
        raise TypeError(f"{name}: {out.dtype}, but {like_name} is {like.dtype}")
    if out.length != count:
        raise ValueError(f"{name}: {out.length} elements, but the result has {count}")
