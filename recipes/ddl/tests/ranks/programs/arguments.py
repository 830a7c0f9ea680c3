"""Arguments that cannot be used: which exception, and that its text names the argument."""

from __future__ import annotations

import sys
from collections.abc import Callable

import ddl
import numpy as np

ddl.init()
X = np.ones(4, np.float32)
SIZE = ddl.size()


def error_of(call: Callable[[], object]) -> Exception | None:
    try:
        call()
    except Exception as error:
        return error
    return None


def read_only() -> np.ndarray:
    x = X.copy()
    x.flags.writeable = False
    return x


NUMPY: list[tuple[type[Exception], str, Callable[[], object]]] = [
    (TypeError, "x: expected a NumPy array", lambda: ddl.allreduce([1, 2])),
    (TypeError, "x: expected a NumPy array", lambda: ddl.broadcast(3.0)),
    (TypeError, "x: cannot reduce complex64", lambda: ddl.allreduce(X.astype("c8"))),
    (TypeError, "x: cannot reduce bool", lambda: ddl.reduce_scatter(np.ones(SIZE, bool))),
    (TypeError, "x: an array of Python objects", lambda: ddl.broadcast(np.array([None]))),
    (ValueError, "x: not contiguous", lambda: ddl.allreduce(np.ones((4, 4))[:, 1])),
    (ValueError, "x: not contiguous", lambda: ddl.broadcast(np.ones((4, 4)).T)),
    (ValueError, "x: foreign byte order", lambda: ddl.allreduce(X.astype(">f4"))),
    (ValueError, "x: not aligned", lambda: ddl.allreduce(np.zeros(9, "u1")[1:].view("f4"))),
    (ValueError, "x: read-only", lambda: ddl.allreduce_(read_only())),
    (ValueError, "x: read-only", lambda: ddl.broadcast(read_only())),
    (ValueError, "out: read-only", lambda: ddl.allreduce(X, out=read_only())),
    (TypeError, "out: float64, but x is float32", lambda: ddl.allreduce(X, out=np.ones(4))),
    (ValueError, "out: 3 elements", lambda: ddl.allreduce(X, out=np.ones(3, "f4"))),
    (ValueError, "out: 3 elements", lambda: ddl.allgather(X, out=np.ones(3, "f4"))),
    (ValueError, "op: unknown operation 'mean'", lambda: ddl.allreduce(X, "mean")),
    (ValueError, "average of int32", lambda: ddl.allreduce(np.ones(2, "i4"), "average")),
    (ValueError, "multiple of", lambda: ddl.reduce_scatter(np.float32(1)[...])),
    (ValueError, f"from 0 to {SIZE - 1}", lambda: ddl.broadcast(X, root=SIZE)),
    (ValueError, f"from 0 to {SIZE - 1}", lambda: ddl.broadcast(X, root=-1)),
    (ValueError, f"from 0 to {SIZE - 1}", lambda: ddl.host_name(SIZE)),
    (ValueError, f"from 0 to {SIZE - 1}", lambda: ddl.new_group([99])),
    (ValueError, "more than the", lambda: ddl.new_group([*range(SIZE), 0])),
    (ValueError, "at least one rank", lambda: ddl.new_group([])),
    (ValueError, "the tag is -1", lambda: ddl.new_group(list(range(SIZE)), tag=-1)),
    (ValueError, "above 0", lambda: ddl.set_timeout(0)),
    (ValueError, "above 0", lambda: ddl.set_timeout(float("nan"))),
    (TypeError, "arrays[1]: cannot reduce", lambda: ddl.allreduce_n([X, X.astype("u1")])),
    (ValueError, "overlap", lambda: ddl.allreduce(BOTH[:-1], out=BOTH[1:])),
    (ValueError, "it has been freed", lambda: ddl.barrier(FREED)),
    (TypeError, "x: expected a NumPy array", lambda: ddl.gather([1, 2])),
    (ValueError, f"root is {SIZE} but must be from 0 to", lambda: ddl.gather(X, root=SIZE)),
    (ValueError, f"root is -1 but must be from 0 to {SIZE - 1}", lambda: ddl.scatter(X, X, -1)),
    (ValueError, "out: read-only", lambda: ddl.scatter(X, read_only())),
    (ValueError, "multiple of", lambda: ddl.alltoall(np.float32(1)[...])),
    (ValueError, "alltoall: send and recv overlap", lambda: ddl.alltoall(ROWS, out=ROWS)),
    (TypeError, "out: int32, but x is float32", lambda: ddl.alltoall(ROWS, out=ROWS.astype("i4"))),
    (ValueError, "x: a single number", lambda: ddl.alltoallv(X[0, ...], EVEN, EVEN)),
    (ValueError, "send_counts: expected", lambda: ddl.alltoallv(ROWS, [1] * (SIZE + 1), EVEN)),
    (ValueError, "recv_counts: expected", lambda: ddl.alltoallv(ROWS, EVEN, [-1] * SIZE)),
    (ValueError, "recv_counts: expected", lambda: ddl.alltoallv(ROWS, EVEN, [0.5] * SIZE)),
    (ValueError, f"rows in all, but x has {SIZE}", lambda: ddl.alltoallv(ROWS, [9] * SIZE, EVEN)),
    (ValueError, "out: it overlaps with x", lambda: ddl.alltoallv(ROWS, EVEN, EVEN, out=ROWS)),
    (ValueError, f"dest is {SIZE} but must be", lambda: ddl.send(X, SIZE)),
    (ValueError, "source is -1 but must be", lambda: ddl.recv(X, -1)),
    (ValueError, "the tag is -2 but must not be negative", lambda: ddl.send(X, 0, -2)),
    (ValueError, "out: not contiguous", lambda: ddl.recv(np.ones((4, 4)).T, 0)),
    (TypeError, "x: expected a NumPy array", lambda: ddl.allreduce_async([1, 2])),
    (ValueError, "x: not contiguous", lambda: ddl.allreduce_async(np.ones((4, 4))[:, 1])),
    (ValueError, "x: not contiguous", lambda: ddl.allreduce_async_(np.ones((4, 4)).T)),
    (ValueError, "x: not contiguous", lambda: ddl.broadcast_async(np.ones((4, 4)).T)),
    (ValueError, "x: not contiguous", lambda: ddl.allgather_async(np.ones((4, 4)).T)),
    (ValueError, "x: not contiguous", lambda: ddl.reduce_scatter_async(np.ones((4, 2 * SIZE)).T)),
    (ValueError, "x: read-only", lambda: ddl.allreduce_async_(read_only())),
    (ValueError, "out: 3 elements", lambda: ddl.allreduce_async(X, out=np.ones(3, "f4"))),
    (ValueError, "op: unknown operation 'mean'", lambda: ddl.allreduce_async(X, "mean")),
    (ValueError, "iallreduce: the average of", lambda: ddl.allreduce_async(INTEGERS, "average")),
    (ValueError, "iallreduce: send and recv", lambda: ddl.allreduce_async(BOTH[:-1], out=BOTH[1:])),
    (ValueError, f"from 0 to {SIZE - 1}", lambda: ddl.broadcast_async(X, root=SIZE)),
    (ValueError, "it has been freed", lambda: ddl.barrier_async(FREED)),
    (ValueError, "it has been freed", lambda: ddl.stats(FREED)),
    (ValueError, "timeout: -1 is not", lambda: ddl.barrier_async().wait(-1)),
]
ROWS = np.ones(SIZE, np.float32)
EVEN = [1] * SIZE
INTEGERS = np.ones(2, np.int32)
BOTH = np.ones(5, np.float32)
FREED = ddl.new_group(list(range(SIZE)))
assert FREED is not None
FREED.free()
if SIZE > 1:
    NUMPY.append((ValueError, "listed twice", lambda: ddl.new_group([0, 0])))
    NUMPY.append((ValueError, "multiple of", lambda: ddl.reduce_scatter(np.ones(SIZE + 1))))


def torch_cases() -> list[tuple[type[Exception], str, Callable[[], object]]]:
    import torch

    t = torch.ones(4)
    return [
        (ValueError, "x: not contiguous", lambda: ddl.allreduce(torch.ones(4, 4).t())),
        (TypeError, "x: the tensor is on meta", lambda: ddl.allreduce(t.to("meta"))),
        (TypeError, "x: torch.sparse_coo", lambda: ddl.allreduce(t.to_sparse())),
        (TypeError, "x: cannot reduce int8", lambda: ddl.allreduce(t.to(torch.int8))),
        (TypeError, "arrays[1]: NumPy", lambda: ddl.allreduce_n([t, X])),
        (TypeError, "out: float64, but x is float32", lambda: ddl.allreduce(t, out=t.double())),
    ]


for kind, text, call in NUMPY + (torch_cases() if "torch" in sys.argv else []):
    error = error_of(call)
    assert isinstance(error, kind), f"{text}: {type(error).__name__}: {error}"
    assert text in str(error), f"{text!r} not in {str(error)!r}"
    # Nothing was communicated: the ranks are still together.
    assert ddl.allreduce(X)[0] == SIZE
if "torch" not in sys.argv:
    assert "torch" not in sys.modules, "NumPy users must not pay for torch"
