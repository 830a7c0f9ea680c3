"""Where Python's interface does not reach: null pointers, null requests, no thread to be had."""

from __future__ import annotations

import ctypes
import resource
import threading
from pathlib import Path

import ddl
import numpy as np

ddl.init()
SIZE = ddl.size()
maps = Path("/proc/self/maps").read_text().splitlines()
lib = ctypes.CDLL(next(line.split()[-1] for line in maps if "/libddl.so" in line))
lib.ddl_last_error.restype = ctypes.c_char_p
FLOAT, SUM, MISMATCH, ARGUMENT, SYSTEM = 0, 0, 3, 2, 7

x = np.ones(1000, np.float32)
y = np.zeros(1000, np.float32)
buffers = (None, ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
three = (*buffers, ctypes.c_size_t(3), FLOAT, SUM)
request = ctypes.c_void_p()
flag = ctypes.c_int(-1)


def expect(code: int, text: str = "") -> None:
    assert code == (ARGUMENT if text else 0), (code, lib.ddl_last_error())
    assert not text or text in lib.ddl_last_error().decode(), lib.ddl_last_error()


# The thread's stack is what does not fit into the address space any more: one that an ended thread
# has left is taken by a thread of ours.
over = threading.Event()
threading.Thread(target=over.wait).start()
pages = int(Path("/proc/self/statm").read_text().split()[0])
old = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (2 << 20), old[1]))
code = lib.ddl_comm_iallreduce(*three, ctypes.byref(request))
resource.setrlimit(resource.RLIMIT_AS, old)
over.set()
assert code == SYSTEM, code
assert b"cannot start the thread of asynchronous calls" in lib.ddl_last_error()
assert not request

expect(lib.ddl_comm_iallreduce(*three, None), "iallreduce: the request pointer is null")
expect(lib.ddl_comm_ibarrier(None, None), "ibarrier: the request pointer is null")
expect(
    lib.ddl_comm_iallreduce(None, None, *three[2:], ctypes.byref(request)),
    "iallreduce: send is null but 12 bytes",
)
expect(lib.ddl_wait(None), "ddl_wait: the request pointer is null")
expect(lib.ddl_test(ctypes.byref(request), None), "ddl_test: the result pointer is null")
expect(lib.ddl_comm_stats(None, None, 8), "ddl_comm_stats: the result pointer is null")

# A null request is one that is done.
expect(lib.ddl_wait(ctypes.byref(request)))
expect(lib.ddl_test(ctypes.byref(request), ctypes.byref(flag)))
assert flag.value == 1

# Wait and test free the request.
expect(lib.ddl_comm_iallreduce(*three, ctypes.byref(request)))
assert request
expect(
    lib.ddl_wait_for(ctypes.byref(request), ctypes.c_double(-1), ctypes.byref(flag)),
    "ddl_wait_for: -1 is not a number of seconds from 0 on",
)
assert request
expect(lib.ddl_wait(ctypes.byref(request)))
assert not request
assert y[:4].tolist() == [SIZE, SIZE, SIZE, 0]
expect(lib.ddl_comm_ibarrier(None, ctypes.byref(request)))
flag.value = 0
while not flag.value:
    expect(lib.ddl_test(ctypes.byref(request), ctypes.byref(flag)))
assert not request

# The code and the sentence of the operation, in the thread that waits.
count = ctypes.c_size_t(3 + (ddl.rank() == SIZE - 1))
expect(lib.ddl_comm_iallreduce(*buffers, count, FLOAT, SUM, ctypes.byref(request)))
code = lib.ddl_wait_for(ctypes.byref(request), ctypes.c_double(1e300), ctypes.byref(flag))
assert (code, flag.value, request.value) == (MISMATCH if SIZE > 1 else 0, 1, None)
assert SIZE == 1 or b"3 x float32" in lib.ddl_last_error()

# A program of an earlier version knows fewer numbers, one of a later version more.
numbers = (ctypes.c_uint64 * 6)(*[9] * 6)
expect(lib.ddl_comm_stats(None, numbers, 16))
assert list(numbers)[1:] == [3, 9, 9, 9, 9]
expect(lib.ddl_comm_stats(None, numbers, 48))
assert list(numbers)[1:] == [3, 0, 0, 0, 0]
