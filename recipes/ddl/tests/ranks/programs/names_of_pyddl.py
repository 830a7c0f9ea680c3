"""DDL's public example for pyddl, with explicit memory and without; and what it refuses."""

from __future__ import annotations

from collections.abc import Callable

import ddl
import numpy as np
import pyddl
from ddl import _core


def error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


assert pyddl.init() == pyddl.DDL_SUCCESS
N, SIZE = 100, ddl.size()
array = np.arange(N, dtype=np.float32)

result, memory = pyddl.malloc(64, N * 4)
assert result == pyddl.DDL_SUCCESS
assert memory.data.ctypes.data % 64 == 0
assert pyddl.memcpy_host_to_device(memory, array) == 0
assert pyddl.memsync() == 0
assert pyddl.allreduce(memory, N, pyddl.DDL_TYPE_FLOAT, pyddl.DDL_OP_SUM) == 0
total = np.zeros((4, 25), np.float32)
assert pyddl.memcpy_device_to_host(total, memory) == 0
np.testing.assert_array_equal(total.reshape(-1), array * SIZE)
assert pyddl.free(memory) == 0

for name, number, nbytes in _core.element_types():
    old = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "HALF"}.get(name, name.upper())
    assert getattr(pyddl, f"DDL_TYPE_{old}") == number
    assert name == "bfloat16" or np.dtype(name).itemsize == nbytes

mine = np.full(4, pyddl.rank() + 1, np.int64)
pyddl.allreduce(mine, 3, pyddl.DDL_TYPE_INT64, pyddl.DDL_OP_MAX)
assert mine.tolist() == [SIZE, SIZE, SIZE, pyddl.rank() + 1]
assert pyddl.local_rank() == ddl.local_rank()

for kind, text, call in (
    (ValueError, "alignment: 3 is not", lambda: pyddl.malloc(3, 8)),
    (ValueError, "nbytes: -1 is below 0", lambda: pyddl.malloc(64, -1)),
    (ValueError, "memory: 0 bytes, but 400", lambda: pyddl.memcpy_host_to_device(memory, array)),
    (ValueError, "memory: 0 bytes, but 400", lambda: pyddl.memcpy_device_to_host(array, memory)),
    (ValueError, "buffer: 0 bytes, but 4", lambda: pyddl.allreduce(memory, 1, 0, 0)),
    (ValueError, "kind: 9 is none", lambda: pyddl.allreduce(array, 1, 9, 0)),
    (ValueError, "count: -1 is below 0", lambda: pyddl.allreduce(array, -1, 0, 0)),
    (ValueError, "unknown operation 77", lambda: pyddl.allreduce(array, 1, 0, 77)),
    (TypeError, "buffer: float32, which is not", lambda: pyddl.allreduce(array, 1, 1, 0)),
    (TypeError, "buffer: expected a NumPy array", lambda: pyddl.allreduce([1.0], 1, 0, 0)),
):
    error = error_of(call)
    assert isinstance(error, kind), f"{text}: {error!r}"
    assert text in str(error), str(error)
assert pyddl.finalize() == 0
