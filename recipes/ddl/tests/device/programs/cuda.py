"""Memory and streams of this rank's GPU, and libddl's C interface: no PyTorch is needed."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator

import ddl
import numpy as np
from libraries import LIBDDL, loaded
from numpy.typing import NDArray

Values = NDArray[np.generic]

RANK, SIZE = ddl.rank(), ddl.size()
CUDART = loaded("/libcudart.so")
CUDART.cudaGetErrorString.restype = ctypes.c_char_p
WORLD = None

TO_DEVICE, TO_HOST = 1, 2
NON_BLOCKING = 1

#: libddl's numbers of the types; bfloat16 is `BFLOAT16`, as numpy has none.
BFLOAT16 = np.dtype([("bits", np.uint16)])
TYPES: dict[np.dtype[np.generic], int] = {
    np.dtype(np.float32): 0,
    np.dtype(np.float64): 1,
    np.dtype(np.float16): 2,
    BFLOAT16: 3,
    np.dtype(np.int32): 4,
    np.dtype(np.int64): 5,
}
SUM, PRODUCT, MIN, MAX, AVERAGE = range(5)


class RefusedError(Exception):
    """libddl has refused a call, or could not end it."""

    def __init__(self, code: int) -> None:
        super().__init__(LIBDDL.ddl_last_error().decode())
        self.code = code


def cuda(name: str, *arguments: object) -> None:
    """Call a function of CUDA's runtime."""
    code = getattr(CUDART, f"cuda{name}")(*arguments)
    assert code == 0, f"cuda{name}: {CUDART.cudaGetErrorString(code).decode()}"


def call(name: str, *arguments: object) -> None:
    """Call `ddl_comm_NAME` of the world; sizes as `n(...)`."""
    if code := getattr(LIBDDL, f"ddl_comm_{name}")(WORLD, *arguments):
        raise RefusedError(code)


def n(count: int) -> ctypes.c_size_t:
    """A size for C."""
    return ctypes.c_size_t(count)


class Memory:
    """Bytes on this rank's GPU, or pinned ones of the host.

    It is given to functions of C itself, or it would be freed before they run.
    """

    def __init__(self, nbytes: int, is_pinned: bool = False) -> None:
        self._as_parameter_ = ctypes.c_void_p()
        self.nbytes = nbytes
        # Room for one where there is none: a null pointer means nothing at all.
        cuda(
            "MallocHost" if is_pinned else "Malloc",
            ctypes.byref(self._as_parameter_),
            n(max(nbytes, 1)),
        )
        self._free = "FreeHost" if is_pinned else "Free"

    def __del__(self) -> None:
        if self._as_parameter_:
            cuda(self._free, self)


def on_gpu(values: Values) -> Memory:
    """The values, on the GPU; they are there when it returns."""
    values = np.ascontiguousarray(values)
    memory = Memory(values.nbytes)
    cuda("Memcpy", memory, ctypes.c_void_p(values.ctypes.data), n(values.nbytes), TO_DEVICE)
    return memory


def from_gpu(memory: Memory, dtype: np.dtype[np.generic], count: int) -> Values:
    """The first values of the memory, by the default stream."""
    values = np.empty(count, dtype)
    cuda("Memcpy", ctypes.c_void_p(values.ctypes.data), memory, n(values.nbytes), TO_HOST)
    return values


@contextlib.contextmanager
def stream() -> Iterator[ctypes.c_void_p]:
    """A stream that waits for no other; libddl's calls of this thread come after its work."""
    made = ctypes.c_void_p()
    cuda("StreamCreateWithFlags", ctypes.byref(made), NON_BLOCKING)
    LIBDDL.ddl_set_stream(made)
    yield made
    LIBDDL.ddl_set_stream(None)
    cuda("StreamDestroy", made)


def expect(memory: Memory, wanted: Values, what: str) -> None:
    """Fail unless the memory begins with these bytes."""
    wanted = np.ascontiguousarray(wanted)
    got = from_gpu(memory, wanted.dtype, wanted.size)
    if got.tobytes() != wanted.tobytes():
        raise AssertionError(f"rank {RANK}: {what}: got {got}, wanted {wanted}")


def refusal(body: Callable[[], object]) -> RefusedError:
    """The error that the call must have."""
    try:
        body()
    except RefusedError as error:
        return error
    raise AssertionError("was not refused")


count = ctypes.c_int()
cuda("GetDeviceCount", ctypes.byref(count))
GPUS = count.value
cuda("SetDevice", RANK % GPUS)
