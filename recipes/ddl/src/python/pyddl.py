"""DDL's `pyddl`: its public names, on `ddl`. New programs had better use `ddl` itself.

    import numpy as np
    import pyddl

    pyddl.init()
    array = np.full(100, pyddl.rank(), np.float32)
    pyddl.allreduce(array, 100, pyddl.DDL_TYPE_FLOAT, pyddl.DDL_OP_SUM)  # in place
    pyddl.finalize()

Where DDL gives a result code, this gives 0, and raises `ddl.DDLError` instead of any other.
`malloc` gives memory of the host, also in the CUDA variant, whose collectives take it as well.
"""

from __future__ import annotations

from typing import Any

import ddl
import numpy as np
from ddl import _core
from ddl._buffers import TYPES, buffer_of
from ddl.errors import check

DDL_SUCCESS = 0
DDL_TYPE_FLOAT, DDL_TYPE_DOUBLE, DDL_TYPE_HALF, DDL_TYPE_BFLOAT16 = 0, 1, 2, 3
DDL_TYPE_INT32, DDL_TYPE_INT64 = 4, 5
DDL_OP_SUM, DDL_OP_PRODUCT, DDL_OP_MIN, DDL_OP_MAX = 0, 1, 2, 3

_BYTES = {number: nbytes for _, number, nbytes in _core.element_types()}

rank, local_rank = ddl.rank, ddl.local_rank


class Memory:
    """Memory of `malloc`; empty after `free`."""

    def __init__(self, data: np.ndarray[Any, np.dtype[np.uint8]]) -> None:
        self.data = data


def init(options: str | None = None) -> int:
    """Start the library, as `ddl.init`; collective over all ranks."""
    ddl.init(options)
    return DDL_SUCCESS


def finalize() -> int:
    """End the library, as `ddl.finalize`; collective over all ranks."""
    ddl.finalize()
    return DDL_SUCCESS


def malloc(alignment: int, nbytes: int) -> tuple[int, Memory]:
    """Get memory whose address is a multiple of `alignment`; the result code and the memory.

    Raises:
        ValueError: the alignment is no power of two, or the size is below 0.
    """
    if alignment < 1 or alignment & (alignment - 1):
        raise ValueError(f"alignment: {alignment} is not a power of two")
    if nbytes < 0:
        raise ValueError(f"nbytes: {nbytes} is below 0")
    raw = np.empty(nbytes + alignment, np.uint8)
    begin = -raw.ctypes.data % alignment
    return DDL_SUCCESS, Memory(raw[begin : begin + nbytes])


def free(memory: Memory) -> int:
    """Give memory of `malloc` back."""
    memory.data = np.empty(0, np.uint8)
    return DDL_SUCCESS


def memcpy_host_to_device(memory: Memory, array: np.ndarray[Any, Any]) -> int:
    """Copy all of `array` to the begin of `memory`.

    Raises:
        TypeError, ValueError: not a contiguous array, or it does not fit; names the argument.
    """
    count = buffer_of("array", array).nbytes
    _check_capacity("memory", memory.data.nbytes, count)
    memory.data[:count] = np.frombuffer(array, np.uint8)
    return DDL_SUCCESS


def memcpy_device_to_host(array: np.ndarray[Any, Any], memory: Memory) -> int:
    """Fill all of `array` from the begin of `memory`.

    Raises:
        As `memcpy_host_to_device`.
    """
    count = buffer_of("array", array, writable=True).nbytes
    _check_capacity("memory", memory.data.nbytes, count)
    np.frombuffer(array, np.uint8)[:] = memory.data[:count]
    return DDL_SUCCESS


def memsync() -> int:
    """Wait for the copies: they are done when they return."""
    return DDL_SUCCESS


def allreduce(buffer: Memory | np.ndarray[Any, Any], count: int, kind: int, op: int) -> int:
    """Reduce the first `count` elements over all ranks, in place.

    Args:
        buffer: memory of `malloc`, or an array of the type that `kind` says.
        count: the same on all ranks.
        kind: DDL_TYPE_FLOAT, or another DDL_TYPE_.
        op: DDL_OP_SUM, or another DDL_OP_.

    Raises:
        TypeError, ValueError: a buffer that cannot be used; the message names the argument.
        ddl.DDLError: the ranks disagree, or one is lost or late.
    """
    array = buffer.data if isinstance(buffer, Memory) else buffer
    data = buffer_of("buffer", array, writable=True)
    if kind not in _BYTES:
        raise ValueError(f"kind: {kind} is none of the DDL_TYPE_ values")
    if not isinstance(buffer, Memory) and TYPES.get(data.dtype) != kind:
        raise TypeError(f"buffer: {data.dtype}, which is not what the DDL_TYPE_ says")
    if count < 0:
        raise ValueError(f"count: {count} is below 0")
    _check_capacity("buffer", data.nbytes, count * _BYTES[kind])
    ddl.size()  # starts the library under ddlrun
    check(_core.run("allreduce", 0, data.address, data.address, count, kind, op, 0))
    return DDL_SUCCESS


def _check_capacity(name: str, capacity: int, nbytes: int) -> None:
    if nbytes > capacity:
        raise ValueError(f"{name}: {capacity} bytes, but {nbytes} are asked for")
